// Package expression compiles the expressions (CEL) that people write into policies, webhooks and
// device selectors, in the environments that Kubernetes gives them.
//
// A Compiler is for the expressions of one object: each may use the variables that were compiled
// before it. It belongs to one goroutine; what it compiled may be evaluated concurrently. The
// functions, the limits and the wording of mistakes are those of k8s.io/apiserver.
package expression

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Expression is the text of one, and what it may evaluate to.
type Expression struct {
	// Name is that of a variable or a condition; others have none.
	Name    string
	Text    string
	returns []*cel.Type
}

// GetExpression, GetName and ReturnTypes make it what the library compiles.
func (e *Expression) GetExpression() string    { return e.Text }
func (e *Expression) GetName() string          { return e.Name }
func (e *Expression) ReturnTypes() []*cel.Type { return e.returns }

// Condition is true or false.
func Condition(name, text string) *Expression {
	return &Expression{Name: name, Text: text, returns: []*cel.Type{cel.BoolType}}
}

// Text evaluates to a text.
func Text(text string) *Expression {
	return &Expression{Text: text, returns: []*cel.Type{cel.StringType}}
}

// Annotation evaluates to a text, or to null for none.
func Annotation(text string) *Expression {
	return &Expression{Text: text, returns: []*cel.Type{cel.StringType, cel.NullType}}
}

// Variable evaluates to anything.
func Variable(name, text string) *Expression {
	return &Expression{Name: name, Text: text, returns: []*cel.Type{cel.AnyType, cel.DynType}}
}

// Applied evaluates to the fields that an object should have.
func Applied(text string) *Expression {
	return &Expression{Text: text, returns: []*cel.Type{cel.ObjectType("Object")}}
}

// JSONPatch evaluates to the operations of one.
func JSONPatch(text string) *Expression {
	return &Expression{Text: text, returns: []*cel.Type{cel.ListType(cel.ObjectType("JSONPatch"))}}
}

// Scope is what an expression may name beside object, oldObject, request and namespaceObject.
type Scope struct{ Params, Authorizer, Patches bool }

func (s Scope) declarations() plugin.OptionalVariableDeclarations {
	return plugin.OptionalVariableDeclarations{
		HasParams: s.Params, HasAuthorizer: s.Authorizer, HasPatchTypes: s.Patches,
	}
}

// Compiler compiles the expressions of one object. The zero value is ready; nothing is set up
// before the first expression.
type Compiler struct{ composited *plugin.CompositedCompiler }

// plain compiles what cannot have variables. Its environments are made once: they cost a few
// milliseconds each.
var plain = sync.OnceValue(func() plugin.Compiler { return plugin.NewCompiler(base()) })

func base() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
}

// lib returns the library's compiler of the object.
func (c *Compiler) lib() *plugin.CompositedCompiler {
	if c.composited == nil {
		made, err := plugin.NewCompositedCompiler(base())
		if err != nil {
			panic("expression: the environment cannot be made: " + err.Error())
		}
		c.composited = made
	}
	return c.composited
}

// Variable compiles a variable, which later expressions may use, even if it is wrong.
func (c *Compiler) Variable(path *field.Path, e *Expression, s Scope) *field.Error {
	result := c.lib().CompileAndStoreVariable(e, s.declarations(), environment.NewExpressions)
	return fault(path, e.Text, result.Error)
}

// Check returns what is wrong with an expression, or nil.
func (c *Compiler) Check(path *field.Path, e *Expression, s Scope) *field.Error {
	compiler := plain()
	if c.composited != nil {
		compiler = c.composited
	}
	return fault(path, e.Text, compiler.CompileCELExpression(e, s.declarations(), environment.NewExpressions).Error)
}

// CheckCondition returns what is wrong with a condition that has no variables, or nil.
func CheckCondition(path *field.Path, e *Expression, s Scope) *field.Error {
	return fault(path, e.Text, plain().CompileCELExpression(e, s.declarations(), environment.NewExpressions).Error)
}

// Conditions compiles expressions that are evaluated one after the other; a nil one has no result.
// What is wrong with one is told when it is evaluated.
func (c *Compiler) Conditions(all []*Expression, s Scope) plugin.ConditionEvaluator {
	accessors := make([]plugin.ExpressionAccessor, len(all))
	for i, e := range all {
		if e != nil {
			accessors[i] = e
		}
	}
	return c.lib().CompileCondition(accessors, s.declarations(), environment.StoredExpressions)
}

// Patch compiles an expression that changes objects.
func (c *Compiler) Patch(e *Expression, s Scope) plugin.MutatingEvaluator {
	s.Patches = true
	return c.lib().CompileMutatingEvaluator(e, s.declarations(), environment.StoredExpressions)
}

// Store compiles a variable of an object that is stored already.
func (c *Compiler) Store(e *Expression, s Scope) {
	c.lib().CompileAndStoreVariable(e, s.declarations(), environment.StoredExpressions)
}

func fault(path *field.Path, text string, err *apicel.Error) *field.Error {
	switch {
	case err == nil:
		return nil
	case err.Type == apicel.ErrorTypeRequired:
		return field.Required(path, err.Detail)
	case err.Type == apicel.ErrorTypeInvalid:
		return field.Invalid(path, text, err.Detail)
	}
	return field.InternalError(path, fmt.Errorf("%w", err))
}
