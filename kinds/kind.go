// Package kinds says what the server knows of each kind of object: a Kind is a record that drives
// decoding, defaulting, validation, merging, tables, discovery and OpenAPI. Built-in kinds and
// those made by a CustomResourceDefinition are the same record; nothing asks which one it is.
//
// A Kind and a Registry are read-only once made and may be used concurrently.
package kinds

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
)

// Object is an object as a tree: map[string]any, []any, string, bool, int64, float64 and nil, as
// in apimachinery's unstructured. Trees handed to a Strategy may be changed where it says so.
type Object = map[string]any

// Kind is the record of one version of one kind.
type Kind struct {
	Group, Version, Kind string
	Resource             string // plural, as in paths
	Singular             string
	ShortNames           []string
	Categories           []string
	Namespaced           bool

	// Schema decodes, prunes, defaults, checks and encodes objects of the kind.
	Schema *compiled.Schema
	// Columns are what kubectl get prints; without any, the name and when the object was made.
	Columns []Column
	// NullRows says that the rows of an empty table are null and not [], as they are in Kubernetes where it has
	// no columns of a kind's own.
	NullRows bool
	// RowOrder, if not nil, compares two objects for the order in which a table of a list has them; without
	// it, that is the order of the list. Equal ones stay as they are.
	RowOrder func(a, b Object) int
	// Status says that status is written through its own subresource: the main resource ignores
	// it, and the subresource ignores the rest.
	Status bool
	// Scale, if not nil, serves the scale subresource.
	Scale *Scale
	// Subresources names further ones that the server has handlers for ("binding", "log").
	Subresources []Subresource
	// Generation says that metadata.generation is kept: it rises when anything but metadata and
	// status changes, and when Bumps says so.
	Generation bool
	// Bumps names further changes that raise the generation, such as a Deployment's annotations;
	// it may be nil.
	Bumps func(obj, old Object) bool
	// Verbs are what can be done with the resource, as discovery lists them; nil is AllVerbs.
	Verbs []string
	// Storage, if not nil, says that the objects are kept under another kind and in its form.
	Storage *Storage
	// Form, if not nil, is what tells the objects of this version from those of others, and from those
	// that were stored before the definition changed.
	Form *Form
	// ListKind is the kind of a list of such objects; "" is Kind and "List".
	ListKind string
	// Declared says that clients know the kind by its JSON alone: a body must name its apiVersion and
	// kind, and there is neither a protobuf form nor a strategic merge patch.
	Declared bool
	// Deprecated is what every client of the kind is warned of; "" if it is not deprecated.
	Deprecated string
	// OpenAPI returns the definition of the kind for documents, where the schema's name does not lead
	// to one; it may be nil.
	OpenAPI func() map[string]any
	// Replaced is closed when another record, or none, is in force for the kind: watches end, and
	// clients begin anew under the next record. It is nil for kinds that never change.
	Replaced <-chan struct{}
	// CreateOnUpdate says that a PUT of a name that does not exist creates it.
	CreateOnUpdate bool
	// UpdateNamesRevision says that a PUT must give the resourceVersion of what it replaces.
	UpdateNamesRevision bool
	// SpecUnowned says that what a client writes of spec counts for nothing after the create, so that
	// no manager owns a part of it.
	SpecUnowned bool
	// ReturnDeleted says that DELETE answers with the object and not with a Status.
	ReturnDeleted bool
	// DefaultPropagation is what DELETE does with dependents when not told: "Background" or "Orphan".
	DefaultPropagation string
	// OrphanWarning is what DELETE warns of when dependents stay because it was not told otherwise.
	OrphanWarning string
	// GracePeriod returns the seconds DELETE leaves an object to end by itself; nil: it goes at once.
	GracePeriod func(obj Object, asked *int64) int64
	// Holds returns what an object has that no other object may have at the same time; nil: nothing.
	// The server reserves it with the write that begins it, and gives it back with the one that ends it.
	Holds func(obj Object) []Held
	// Fields are what field selectors may name, beside metadata.name and metadata.namespace, and
	// how to read them.
	Fields map[string]func(Object) string
	// AbsentAs is what GET calls the resource when it says that an object is not there; "" is Resource.
	AbsentAs string
	// UnknownField says, of a field that Fields does not have, that it cannot be selected by, with %s or %q
	// for its name; "" is said in the words of most kinds.
	UnknownField string
	// FinalizersQualified says that finalizers other than Kubernetes' own must begin with a domain.
	FinalizersQualified bool
	// Metadata says when what is wrong with the metadata of a new object is told.
	Metadata MetadataOrder
	// NameCheckedAgain says that an update has NameRule look at metadata.generateName as a create has.
	NameCheckedAgain bool
	// NameRule checks metadata.name; nil is DNS-1123 subdomain.
	NameRule func(name string, prefix bool) []string

	Strategy Strategy
}

// UnknownFieldText is UnknownField, or what stands for it.
func (k *Kind) UnknownFieldText() string {
	switch {
	case k.UnknownField != "":
		return k.UnknownField
	case len(k.Fields) == 0:
		return `%q is not a known field selector: only "metadata.name", "metadata.namespace"`
	}
	return "field label not supported: %s"
}

// GVR is the kind's group, version and resource.
func (k *Kind) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// GVK is the kind's group, version and kind.
func (k *Kind) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}

// GroupResource is how messages name the resource: "deployments.apps", "pods". It is also the
// store's Key.Resource.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// MetadataOrder is when the metadata of a new object is looked at.
type MetadataOrder uint8

const (
	// MetadataFirst is before all else.
	MetadataFirst MetadataOrder = iota
	// MetadataNext is behind Validate, and before ValidateCreate.
	MetadataNext
	// MetadataAlone is if nothing else is wrong; a name may then be whatever a path can have in it.
	MetadataAlone
)

// Absent is the GroupResource by which GET names an object that is not there.
func (k *Kind) Absent() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: cmp.Or(k.AbsentAs, k.Resource)}
}

// Env is what a Strategy may ask of the world. It is the server's; tests make their own.
type Env struct {
	Context context.Context
	Now     time.Time
	// User is who asks.
	User User
	// Get reads another object, or nil if there is none. What it returns is read-only.
	Get func(group, resource, namespace, name string) Object
	// Warn tells the client of something; nil if nobody listens.
	Warn func(text string)
	// AllocateIP chooses a service address that nobody holds ("" asks for any) for the object that is
	// being written. What it comes to hold, Kind.Holds says.
	AllocateIP func(ip string) (string, error)
	// AllocatePort does the same for a node port; zero asks for any.
	AllocatePort func(port int64) (int64, error)
}

// Held is something that one object at a time can have: a name in a space.
type Held struct{ Space, Name string }

// The spaces of what services hold: addresses in their usual spelling, and decimal numbers.
const (
	ServiceAddresses = "service-addresses"
	NodePorts        = "node-ports"
)

// User is somebody as the server knows him, for kinds whose objects say who made them.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Strategy is where a kind behaves as its schema cannot say. Any hook may be nil.
// Order on a create: Default, PrepareForCreate, Validate, ValidateCreate. On an update: Default,
// PrepareForUpdate, Validate, ValidateUpdate. Status writes run Default, PrepareForStatusUpdate and
// ValidateStatusUpdate. None of them looks at what every object's metadata must be: the server does.
type Strategy struct {
	// Default sets conditional defaults, after the schema's, on every write. It must be idempotent.
	Default func(obj Object)
	// PrepareForCreate sets what a client may not choose and what the server allocates.
	PrepareForCreate func(env *Env, obj Object) error
	// PrepareForUpdate carries over from old what an update may not change silently.
	PrepareForUpdate func(env *Env, obj, old Object) error
	// PrepareForStatusUpdate does the same for the status subresource.
	PrepareForStatusUpdate func(env *Env, obj, old Object)
	// PrepareForDelete makes an object ready to be deleted, when a deletion begins: it may set
	// finalizers, which the object then waits for.
	PrepareForDelete func(env *Env, obj Object)
	// Validate returns what is wrong with the object, new or changed.
	Validate func(obj Object) field.ErrorList
	// ValidateCreate returns what is wrong only because the object is new.
	ValidateCreate func(obj Object) field.ErrorList
	// ValidateUpdate returns what may not change. With ChangesFirst that is told before what Validate finds.
	ValidateUpdate func(obj, old Object) field.ErrorList
	ChangesFirst   bool
	// ValidateStatusUpdate replaces both for the status subresource.
	ValidateStatusUpdate func(obj, old Object) field.ErrorList
	// Warnings returns texts for Warning headers; old is nil on create.
	Warnings func(obj, old Object) []string
}

// AllVerbs are the verbs of a resource with nothing special about it, in discovery's order.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// Storage says that objects of one kind are kept as objects of another, as the two kinds of Event
// are: one object, seen through two APIs.
type Storage struct {
	// Group, Version, Kind and Resource are the other kind's. The store's key is made of its
	// GroupResource, and its schema writes the bytes.
	Group, Version, Kind, Resource string
	// ToStored and FromStored rewrite an object in place into the other form and back, apiVersion
	// and kind included. Nothing is lost either way.
	ToStored, FromStored func(obj Object)
}

// ListKindName is the kind of a list of the kind's objects.
func (k *Kind) ListKindName() string {
	if k.ListKind != "" {
		return k.ListKind
	}
	return k.Kind + "List"
}

// Scale says where a kind keeps its replicas; paths are dotted, such as "spec.replicas".
type Scale struct {
	SpecReplicas   string
	StatusReplicas string
	// LabelSelector is the path of a string selector, of a metav1.LabelSelector, or of labels.
	LabelSelector string
	// AsField leaves it to the kind's own rules to refuse a number of replicas, by the name of the
	// object's field. Otherwise it is refused as a field of the Scale.
	AsField bool
}

// Subresource is a further path below an object, as discovery lists it.
type Subresource struct {
	Name                 string
	Group, Version, Kind string // of the body, where it differs from the object's
	Verbs                []string
	// Strategy, if not nil, makes it a view of the object: it is read as the object is, and written
	// by PUT and PATCH under this strategy, which lets through what the view is for.
	Strategy *Strategy
}

// Column is one column of a table.
type Column struct {
	Name        string
	Type        string // "string", "integer", "boolean", "number", "date"
	Format      string // "name" for the first column
	Description string
	Priority    int32 // above zero only in -o wide
	// Cell computes the value; nil is printed as <none> or <unknown> by the function itself.
	Cell func(obj Object, now time.Time) any
}
