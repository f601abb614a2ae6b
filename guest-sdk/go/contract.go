package pilothouse

// The contract's records, as operator.wit has them.

// Desired is what the user wants, and the pass's clock and randomness.
type Desired struct {
	Primary  string
	Deleting bool
	Config   string
	Now      string
	Seed     uint64
}

// Observed is the cluster as the host saw it when the pass began.
type Observed struct {
	Children []string
	Related  []AnswerText
	Last     []Rejected
}

// AnswerText is an answer before its objects are read.
type AnswerText struct {
	Query    string
	Complete bool
	Objects  []string
}

// Rejected is an action of the previous pass that the API server refused.
type Rejected struct {
	Index   uint32
	Target  *Reference
	Reason  string
	Message string
}

// Reference names one object. Empty texts stand for none.
type Reference struct {
	Resource  Resource
	Namespace string
	Name      string
	UID       string
}

// Outcome is what a pass decided.
type Outcome struct {
	Actions []Action
	// Invalid, Retry or nil.
	Failure error
}

// Action is one thing that the host shall do: one of the types below.
type Action interface{ isAction() }

// Apply creates a child, or brings it to this state.
type Apply struct{ Object, Options string }

// Deletion deletes a child, or an object of a kind among the targets.
type Deletion struct {
	Target  Reference
	Options string
}

// TargetPatch changes an object of a kind among the targets, by a JSON merge patch.
type TargetPatch struct {
	Target         Reference
	Patch, Options string
}

// SecretTemplate creates or completes a Secret with values that the host draws and no plugin sees.
type SecretTemplate struct {
	Name     string
	Literals []KeyValue
	Random   []RandomKey
	Composed []KeyValue
	Options  string
}

// KeyValue is a key of a Secret and its text.
type KeyValue struct{ Key, Value string }

// RandomKey is a key that the host draws.
type RandomKey struct {
	Key      string
	Length   uint32
	Alphabet Alphabet
}

// Alphabet has the characters of a random key.
type Alphabet uint8

// In the order of the contract.
const (
	Alphanumeric Alphabet = iota
	Hexadecimal
	Base64URL
)

// SetStatus is the whole status of the primary.
type SetStatus string

// Event is a Kubernetes Event about the primary.
type Event struct {
	Warning         bool
	Reason, Message string
}

// Query asks for objects that the plugin does not own.
type Query struct {
	ID        string
	Resource  Resource
	Namespace string
	Name      string
	Options   string
}

// RequeueAfter runs again after so many milliseconds at the latest.
type RequeueAfter uint64

// Release ends the deletion.
type Release struct{}

// Extension is an action that the contract does not know as a case of its own.
type Extension struct{ Name, Body string }

func (Apply) isAction()          {}
func (Deletion) isAction()       {}
func (TargetPatch) isAction()    {}
func (SecretTemplate) isAction() {}
func (SetStatus) isAction()      {}
func (Event) isAction()          {}
func (Query) isAction()          {}
func (RequeueAfter) isAction()   {}
func (Release) isAction()        {}
func (Extension) isAction()      {}
