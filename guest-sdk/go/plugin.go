package pilothouse

import "encoding/json"

// Plugin is what a component is.
type Plugin struct {
	// Identity: field manager, label values and finalizers are made of it.
	Name    string `json:"name"`
	Version string `json:"version"`
	// CustomResourceDefinitions that it brings along. The host's own condition is written to their kinds alone.
	CRDs        []json.RawMessage `json:"crds,omitempty"`
	Controllers []Controller      `json:"controllers"`
}

// Controller says which kind is reconciled, what may be touched for its objects, and how.
type Controller struct {
	Primary       Resource  `json:"primary"`
	Children      []Child   `json:"children,omitempty"`
	Related       []Related `json:"related,omitempty"`
	Targets       []Target  `json:"targets,omitempty"`
	Finalizer     string    `json:"finalizer,omitempty"`
	ResyncSeconds int       `json:"resyncSeconds,omitempty"`

	// One pass over an object that is not being deleted. Actions before an Invalid or Retry are carried out all the same;
	// any other error is a mistake, and nothing is.
	Reconcile func(*Pass, *Actions) error `json:"-"`
	// One pass over one that is, if there is a finalizer; nil releases it at once, else Actions.Release is for it to say.
	Finalize func(*Pass, *Actions) error `json:"-"`
}

// Child is a kind that the plugin creates and owns.
type Child struct {
	Resource   Resource `json:"resource"`
	CreateOnly bool     `json:"createOnly,omitempty"`
	// "own" or "any"; empty for the first.
	Namespaces string `json:"namespaces,omitempty"`
	// In the form of the manifest's updateStrategy.
	UpdateStrategy json.RawMessage `json:"updateStrategy,omitempty"`
}

// Related is a kind that it reads without owning. The selector may use $(name), $(namespace) and $(uid) of the primary;
// without one the kind is only for look-ups.
type Related struct {
	Name          string   `json:"name"`
	Resource      Resource `json:"resource"`
	Selector      string   `json:"selector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`
}

// Target is a kind that it changes or deletes without owning: "patch", "patch-status", "patch-scale", "delete".
type Target struct {
	Resource Resource `json:"resource"`
	Verbs    []string `json:"verbs"`
}

var served *Plugin

// Serve makes the program this plugin. Called once, from init.
func Serve(plugin Plugin) {
	if served != nil {
		panic("pilothouse: Serve is called twice")
	}
	served = &plugin
}

// Invalid is an error that the object's user must mend. The text names the field and what would be right.
type Invalid string

func (i Invalid) Error() string { return string(i) }

// Retry is an error that may be gone later: the host tries again, each time later.
type Retry string

func (r Retry) Error() string { return string(r) }
