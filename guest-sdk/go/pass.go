package pilothouse

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Pass is what is known of one object.
type Pass struct {
	Primary   Object
	Name      string
	Namespace string
	Now       time.Time
	Seed      uint64
	// Objects of the declared child kinds that the primary owns.
	Children []Object
	// By names of rules and look-ups.
	Related  map[string]Answer
	Rejected []Rejected

	config string
}

// Answer is the objects found for one query.
type Answer struct {
	Objects []Object
	// False while the host cannot know all of them yet, or cut the list at the limit of the query.
	Complete bool
}

// Spec reads the object's spec into a value. The error is the user's to mend.
func (p *Pass) Spec(into any) error {
	if err := json.Unmarshal([]byte(text(p.Primary["spec"])), into); err != nil {
		return Invalid("spec: " + err.Error())
	}
	return nil
}

// Config reads the plugin's configuration into a value.
func (p *Pass) Config(into any) error { return json.Unmarshal([]byte(p.config), into) }

// Child is the child of this kind and name; nil if there is none.
func (p *Pass) Child(resource Resource, wanted string) Object {
	for _, child := range p.Children {
		if resource.IsKindOf(child) && name(child) == wanted {
			return child
		}
	}
	return nil
}

// Run is one pass of a plugin: what the component does when the host calls it, and what tests call.
func Run(plugin *Plugin, desired Desired, observed Observed) Outcome {
	pass, err := newPass(desired, observed)
	if err != nil {
		return Outcome{Failure: Retry(err.Error())}
	}
	for _, controller := range plugin.Controllers {
		if controller.Primary.IsKindOf(pass.Primary) {
			// Of an object that is going, Finalize undoes what was once done for it, however it looks by now.
			if problem := plugin.problem(pass.Primary); problem != "" && !desired.Deleting {
				return Outcome{Failure: Invalid(problem)}
			}
			return controller.run(pass, desired.Deleting)
		}
	}
	return Outcome{Failure: Retry("this plugin does not serve objects of that kind")}
}

func (c *Controller) run(pass *Pass, deleting bool) Outcome {
	step := c.Reconcile
	if deleting {
		step = c.Finalize
		if step == nil {
			step = func(_ *Pass, actions *Actions) error { actions.Release(); return nil }
		}
	}
	var actions Actions
	err := step(pass, &actions)
	var invalid Invalid
	var retry Retry
	switch {
	case err == nil:
		return Outcome{Actions: actions.list}
	case errors.As(err, &invalid):
		return Outcome{Actions: actions.list, Failure: Invalid(err.Error())}
	case errors.As(err, &retry):
		return Outcome{Actions: actions.list, Failure: Retry(err.Error())}
	default:
		return Outcome{Failure: Retry(err.Error())}
	}
}

func newPass(desired Desired, observed Observed) (*Pass, error) {
	pass := &Pass{Seed: desired.Seed, Rejected: observed.Last, Related: map[string]Answer{}, config: desired.Config}
	var err error
	if pass.Primary, err = read(desired.Primary); err != nil {
		return nil, err
	}
	metadata, _ := pass.Primary["metadata"].(map[string]any)
	pass.Name = name(pass.Primary)
	pass.Namespace, _ = metadata["namespace"].(string)
	if pass.Now, err = time.Parse(time.RFC3339Nano, desired.Now); err != nil {
		return nil, err
	}
	if pass.Children, err = readAll(observed.Children); err != nil {
		return nil, err
	}
	for _, answer := range observed.Related {
		objects, err := readAll(answer.Objects)
		if err != nil {
			return nil, err
		}
		pass.Related[answer.Query] = Answer{Objects: objects, Complete: answer.Complete}
	}
	return pass, nil
}

func readAll(texts []string) ([]Object, error) {
	objects := make([]Object, 0, len(texts))
	for _, one := range texts {
		object, err := read(one)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func read(json_ string) (Object, error) {
	var object Object
	if err := json.Unmarshal([]byte(json_), &object); err != nil {
		return nil, fmt.Errorf("the host sent what is no JSON: %w", err)
	}
	return object, nil
}
