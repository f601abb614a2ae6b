package pilothouse

import (
	"fmt"
	"time"
)

// Actions is what a pass has decided so far; carried out in this order.
type Actions struct{ list []Action }

// Add appends an action with options of its own.
func (a *Actions) Add(action Action) { a.list = append(a.list, action) }

// Apply creates a child, or brings it to this state: the fields that the plugin decides and no others.
func (a *Actions) Apply(object Object) { a.Add(Apply{Object: text(object)}) }

// Delete deletes a child, or an object of a kind among the targets.
func (a *Actions) Delete(resource Resource, name string) {
	a.Add(Deletion{Target: Reference{Resource: resource, Name: name}})
}

// SetStatus sets the whole status of the primary. Conditions are merged by their type.
func (a *Actions) SetStatus(status any) { a.Add(SetStatus(text(status))) }

// Eventf records a Kubernetes Event about the primary.
func (a *Actions) Eventf(reason, format string, arguments ...any) {
	a.Add(Event{Reason: reason, Message: fmt.Sprintf(format, arguments...)})
}

// Warningf records one that warns.
func (a *Actions) Warningf(reason, format string, arguments ...any) {
	a.Add(Event{Warning: true, Reason: reason, Message: fmt.Sprintf(format, arguments...)})
}

// RequeueAfter runs again after this time at the latest.
func (a *Actions) RequeueAfter(delay time.Duration) {
	a.Add(RequeueAfter(max(0, delay.Milliseconds())))
}

// Release ends the deletion: the host removes the finalizer.
func (a *Actions) Release() { a.Add(Release{}) }

// Condition is one of a status, in the form of metav1.Condition; the host keeps the rest of it right.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// NewCondition is one that holds or does not.
func NewCondition(kind string, holds bool, reason, message string) Condition {
	status := "False"
	if holds {
		status = "True"
	}
	return Condition{Type: kind, Status: status, Reason: reason, Message: message}
}
