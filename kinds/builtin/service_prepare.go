package builtin

import (
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// ipFamily is the family of the addresses that there are; services of two families are not offered.
const ipFamily = "IPv4"

// prepareService gives a new service its addresses and ports. It only looks at what it needs for
// that: the rest is checked afterwards, and what was allocated goes back if that fails.
func prepareService(env *kinds.Env, obj kinds.Object) error {
	obj["status"] = map[string]any{"loadBalancer": map[string]any{}}
	spec := tree.Ensure(obj, "spec")
	if ip := tree.Str(spec, "clusterIP"); ip != "" && len(tree.List(spec, "clusterIPs")) == 0 {
		spec["clusterIPs"] = []any{ip}
	}
	if err := ipFamilies(obj, spec, nil); err != nil {
		return err
	}
	if err := clusterIP(env, obj, spec); err != nil {
		return err
	}
	if err := nodePorts(env, obj, spec, nil); err != nil {
		return err
	}
	return healthCheckPort(env, obj, spec)
}

// prepareServiceUpdate keeps what was allocated where the client does not say otherwise, allocates
// what the new type needs, and takes out what only the old one did.
func prepareServiceUpdate(env *kinds.Env, obj, old kinds.Object) error {
	spec, oldSpec := tree.Ensure(obj, "spec"), tree.Map(old, "spec")
	tree.Move("status", old, obj)
	keepAllocated(spec, oldSpec)
	if err := ipFamilies(obj, spec, oldSpec); err != nil {
		return err
	}
	if needsClusterIP(spec) && !needsClusterIP(oldSpec) {
		if err := clusterIP(env, obj, spec); err != nil {
			return err
		}
	}
	if err := nodePorts(env, obj, spec, oldSpec); err != nil {
		return err
	}
	if !needsHealthCheckPort(oldSpec) {
		if err := healthCheckPort(env, obj, spec); err != nil {
			return err
		}
	}
	dropUnneeded(obj, spec, oldSpec)
	return nil
}

func keepAllocated(spec, old map[string]any) {
	if needsClusterIP(spec) && needsClusterIP(old) {
		setIfEmpty(spec, "clusterIP", tree.Str(old, "clusterIP"))
		if len(tree.List(spec, "clusterIPs")) == 0 {
			tree.Move("clusterIPs", old, spec)
		}
	}
	keepNodePorts(spec, old)
	if needsHealthCheckPort(spec) && needsHealthCheckPort(old) && tree.Int(spec, "healthCheckNodePort") == 0 {
		tree.Move("healthCheckNodePort", old, spec)
	}
	syncClusterIPs(spec, old)
}

// keepNodePorts finds the old ports again by their names, unless another port has taken their number.
func keepNodePorts(spec, old map[string]any) {
	if !needsNodePorts(spec) || !needsNodePorts(old) {
		return
	}
	taken, byName := map[int64]bool{}, map[string]int64{}
	for _, p := range tree.Maps(spec, "ports") {
		taken[tree.Int(p, "nodePort")] = true
	}
	for _, p := range tree.Maps(old, "ports") {
		byName[tree.Str(p, "name")] = tree.Int(p, "nodePort")
	}
	for _, p := range tree.Maps(spec, "ports") {
		n := byName[tree.Str(p, "name")]
		if tree.Int(p, "nodePort") == 0 && n != 0 && !taken[n] {
			p["nodePort"] = n
		}
	}
}

// syncClusterIPs makes clusterIPs follow a client that knows only clusterIP.
func syncClusterIPs(spec, old map[string]any) {
	now, was := tree.Str(spec, "clusterIP"), tree.Str(old, "clusterIP")
	if now == was || !tree.Equal(spec["clusterIPs"], old["clusterIPs"]) {
		return
	}
	if now == "" {
		delete(spec, "clusterIPs")
	} else {
		spec["clusterIPs"] = []any{now}
	}
}

// ipFamilies sets the policy and the families, from what the client gave or what was.
func ipFamilies(obj kinds.Object, spec, old map[string]any) error {
	if !needsClusterIP(spec) {
		return nil
	}
	none := tree.Str(spec, "clusterIP") == headless
	selectorless := none && len(tree.Map(spec, "selector")) == 0
	if !tree.Has(spec, "ipFamilyPolicy") {
		switch policy := tree.Str(old, "ipFamilyPolicy"); {
		case policy != "":
			spec["ipFamilyPolicy"] = policy
		case selectorless:
			spec["ipFamilyPolicy"] = "RequireDualStack" // whoever writes its endpoints chooses
		default:
			spec["ipFamilyPolicy"] = "SingleStack"
		}
	}
	var e check.Errors
	clusterIPFields(&e, check.Root(obj).Child("spec"))
	if !e.OK() {
		return invalidService(obj, e.List())
	}
	familiesAsked(&e, check.Root(obj).Child("spec"), selectorless)
	if !e.OK() {
		return invalidService(obj, e.List())
	}
	if len(tree.List(spec, "ipFamilies")) == 0 {
		spec["ipFamilies"] = []any{ipFamily}
	}
	families := tree.List(spec, "ipFamilies")
	if selectorless && len(families) == 1 && tree.Str(spec, "ipFamilyPolicy") != "SingleStack" {
		other := "IPv6"
		if families[0] == other {
			other = ipFamily
		}
		spec["ipFamilies"] = []any{families[0], other}
	}
	return nil
}

// familiesAsked checks what was asked for against what there is.
func familiesAsked(e *check.Errors, spec check.At, selectorless bool) {
	policy, path := spec.Str("ipFamilyPolicy"), spec.At("ipFamilyPolicy")
	if policy == "SingleStack" {
		if spec.Len("clusterIPs") == 2 {
			e.Invalid(path, policy,
				"must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
		}
		if spec.Len("ipFamilies") == 2 {
			e.Invalid(path, policy,
				"must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
		}
	}
	for i, ip := range spec.Strings("clusterIPs") {
		if ip != headless && familyOf(ip) != ipFamily && i >= spec.Len("ipFamilies") {
			e.Invalid(spec.At("clusterIPs").Index(i), spec.Strings("clusterIPs"),
				familyOf(ip)+" is not configured on this cluster")
		}
	}
	if !e.OK() || selectorless {
		return
	}
	if policy == "RequireDualStack" {
		e.Invalid(path, policy, "this cluster is not configured for dual-stack services")
	}
	for i, family := range spec.Strings("ipFamilies") {
		if family != ipFamily {
			e.Invalid(spec.At("ipFamilies").Index(i), family, "not configured on this cluster")
		}
	}
}

func clusterIP(env *kinds.Env, obj kinds.Object, spec map[string]any) error {
	if !needsClusterIP(spec) || isHeadless(spec) {
		return nil
	}
	asked := tree.Str(spec, "clusterIP")
	ip, err := env.AllocateIP(asked)
	if err != nil {
		detail := "failed to allocate IP: " + err.Error()
		if asked != "" {
			detail = fmt.Sprintf("failed to allocate IP %s: %v", asked, err)
		}
		path := field.NewPath("spec", "clusterIPs")
		return invalidService(obj,
			field.ErrorList{field.Invalid(path, tree.Strings(spec, "clusterIPs"), detail)})
	}
	spec["clusterIP"] = ip
	spec["clusterIPs"] = []any{ip}
	return nil
}

// nodePorts allocates the ports that are asked for and not had already, and any where none is asked
// for. One number serves all protocols of a port.
func nodePorts(env *kinds.Env, obj kinds.Object, spec, old map[string]any) error {
	if !needsNodePorts(spec) {
		return nil
	}
	had := map[int64]bool{}
	for _, p := range tree.Maps(old, "ports") {
		had[tree.Int(p, "nodePort")] = needsNodePorts(old)
	}
	byPort := map[int64]int64{}
	for _, p := range tree.Maps(spec, "ports") {
		if n := tree.Int(p, "nodePort"); n != 0 && old == nil {
			byPort[tree.Int(p, "port")] = n
		}
	}
	allocate := tree.Str(spec, "type") == nodePortType ||
		tree.Bool(spec, "allocateLoadBalancerNodePorts")
	for i, p := range tree.Maps(spec, "ports") {
		n := tree.Int(p, "nodePort")
		if n == 0 && !allocate {
			continue
		}
		if n == 0 {
			n = byPort[tree.Int(p, "port")]
		}
		if n == 0 || !had[n] {
			got, err := env.AllocatePort(n)
			if err != nil {
				path := field.NewPath("spec", "ports").Index(i).Child("nodePort")
				return invalidService(obj, field.ErrorList{field.Invalid(path, n, err.Error())})
			}
			n = got
		}
		p["nodePort"] = n
		had[n] = true
		if old == nil {
			byPort[tree.Int(p, "port")] = n
		}
	}
	return nil
}

func healthCheckPort(env *kinds.Env, obj kinds.Object, spec map[string]any) error {
	if !needsHealthCheckPort(spec) {
		return nil
	}
	asked := tree.Int(spec, "healthCheckNodePort")
	n, err := env.AllocatePort(asked)
	if err != nil {
		path := field.NewPath("spec", "healthCheckNodePort")
		return invalidService(obj, field.ErrorList{field.Invalid(path, asked, err.Error())})
	}
	spec["healthCheckNodePort"] = n
	return nil
}

// dropUnneeded takes out what the old type needed and the new one must not have, unless the client
// changed it too and is to be told.
func dropUnneeded(obj kinds.Object, spec, old map[string]any) {
	same := func(name string) bool { return tree.Equal(spec[name], old[name]) }
	if needsClusterIP(old) && !needsClusterIP(spec) {
		if same("clusterIP") && same("clusterIPs") {
			delete(spec, "clusterIP")
			delete(spec, "clusterIPs")
		}
		for _, name := range []string{"ipFamilies", "ipFamilyPolicy"} {
			if same(name) {
				delete(spec, name)
			}
		}
	}
	if needsNodePorts(old) && !needsNodePorts(spec) && noNewNodePorts(spec, old) {
		for _, p := range tree.Maps(spec, "ports") {
			delete(p, "nodePort")
		}
	}
	if needsHealthCheckPort(old) && !needsHealthCheckPort(spec) && same("healthCheckNodePort") {
		delete(spec, "healthCheckNodePort")
	}
	if tree.Str(old, "type") == loadBalancerType && tree.Str(spec, "type") != loadBalancerType {
		for _, name := range []string{"allocateLoadBalancerNodePorts", "loadBalancerClass"} {
			if same(name) {
				delete(spec, name)
			}
		}
	}
	if external(old) && !external(spec) && same("externalTrafficPolicy") {
		delete(spec, "externalTrafficPolicy")
	}
	if tree.Str(spec, "type") != loadBalancerType {
		status := map[string]any{}
		maps.Copy(status, tree.Map(obj, "status"))
		status["loadBalancer"] = map[string]any{}
		obj["status"] = status
	}
}

func noNewNodePorts(spec, old map[string]any) bool {
	var had []int64
	for _, p := range tree.Maps(old, "ports") {
		had = append(had, tree.Int(p, "nodePort"))
	}
	for _, p := range tree.Maps(spec, "ports") {
		if n := tree.Int(p, "nodePort"); n != 0 && !slices.Contains(had, n) {
			return false
		}
	}
	return true
}

func invalidService(obj kinds.Object, list field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, tree.Str(obj, "metadata", "name"), list)
}
