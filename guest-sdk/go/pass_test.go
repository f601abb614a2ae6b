package pilothouse

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"
)

var thing = Namespaced("example.com", "v1", "things", "Thing")

const primary = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"one","namespace":"n"},"spec":{"text":"a"}}`

func run(t *testing.T, controller Controller, deleting bool, observed Observed) Outcome {
	t.Helper()
	controller.Primary = thing
	plugin := &Plugin{Name: "p", Version: "1", Controllers: []Controller{controller}}
	desired := Desired{Primary: primary, Deleting: deleting, Config: `{"c":1}`, Now: "2026-01-02T03:04:05Z"}
	return Run(plugin, desired, observed)
}

func TestPassShowsWhatThereIs(t *testing.T) {
	observed := Observed{
		Children: []string{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`},
		Related:  []AnswerText{{Query: "pods", Complete: true, Objects: []string{`{"kind":"Pod"}`}}},
		Last:     []Rejected{{Reason: "Conflict"}},
	}
	outcome := run(t, Controller{Reconcile: func(pass *Pass, actions *Actions) error {
		var spec struct{ Text string }
		var config struct{ C int }
		if err := errors.Join(pass.Spec(&spec), pass.Config(&config)); err != nil {
			t.Fatal(err)
		}
		if pass.Child(ConfigMap, "a") == nil || pass.Child(ConfigMap, "b") != nil || pass.Child(Secret, "a") != nil {
			t.Errorf("children: %v", pass.Children)
		}
		if !pass.Related["pods"].Complete || len(pass.Related["pods"].Objects) != 1 || pass.Rejected[0].Reason != "Conflict" {
			t.Errorf("%v %v", pass.Related, pass.Rejected)
		}
		actions.SetStatus(map[string]any{"text": spec.Text, "c": config.C, "now": pass.Now, "name": pass.Name})
		actions.RequeueAfter(1500 * time.Millisecond)
		return nil
	}}, false, observed)
	want := []Action{
		SetStatus(`{"c":1,"name":"one","now":"2026-01-02T03:04:05Z","text":"a"}`),
		RequeueAfter(1500),
	}
	if !reflect.DeepEqual(outcome.Actions, want) {
		t.Errorf("%v", outcome.Actions)
	}
}

func TestFailuresKeepWhatWasDecidedAndMistakesDoNot(t *testing.T) {
	for _, test := range []struct {
		err     error
		failure error
		actions int
	}{
		{Invalid("spec.text: no"), Invalid("spec.text: no"), 1},
		{fmt.Errorf("outer: %w", Retry("later")), Retry("outer: later"), 1},
		{errors.New("a mistake"), Retry("a mistake"), 0},
	} {
		outcome := run(t, Controller{Reconcile: func(_ *Pass, actions *Actions) error {
			actions.Apply(ConfigMap.Object("a"))
			return test.err
		}}, false, Observed{})
		if outcome.Failure != test.failure || len(outcome.Actions) != test.actions {
			t.Errorf("%v: %#v", test.err, outcome)
		}
	}
}

func TestASpecOfAnotherTypeIsTheUsers(t *testing.T) {
	outcome := run(t, Controller{Reconcile: func(pass *Pass, _ *Actions) error {
		var spec struct{ Text int }
		return pass.Spec(&spec)
	}}, false, Observed{})
	if _, invalid := outcome.Failure.(Invalid); !invalid {
		t.Errorf("%#v", outcome)
	}
}

func TestDeletionReleasesAtOnceUnlessThereIsSomethingToDo(t *testing.T) {
	outcome := run(t, Controller{}, true, Observed{})
	if !reflect.DeepEqual(outcome.Actions, []Action{Release{}}) {
		t.Errorf("%v", outcome.Actions)
	}
	outcome = run(t, Controller{Finalize: func(*Pass, *Actions) error { return nil }}, true, Observed{})
	if len(outcome.Actions) != 0 {
		t.Errorf("%v", outcome.Actions)
	}
}

func TestManifestLeavesOutWhatWasNotSaid(t *testing.T) {
	plugin := Plugin{Name: "p", Version: "1", Controllers: []Controller{{Primary: thing, Children: []Child{{Resource: ConfigMap}}}}}
	var manifest map[string]any
	if err := json.Unmarshal([]byte(text(plugin)), &manifest); err != nil {
		t.Fatal(err)
	}
	controller := manifest["controllers"].([]any)[0].(map[string]any)
	if len(controller) != 2 || controller["primary"].(map[string]any)["plural"] != "things" {
		t.Errorf("%v", controller)
	}
}

func TestAnObjectThatItsSchemaDoesNotAllowIsTheUsersToMend(t *testing.T) {
	crd := `{"spec":{"group":"example.com","names":{"kind":"Thing"},"versions":[{"name":"v1","schema":{"openAPIV3Schema":
		{"required":["spec"],"properties":{"spec":{"type":"object","required":["size"],"properties":{
			"size":{"type":"integer"},"mode":{"type":"string","enum":["a","b"]},"port":{"x-kubernetes-int-or-string":true},
			"labels":{"type":"object","additionalProperties":{"type":"string"}},
			"list":{"type":"array","items":{"type":"object","required":["name"]}}}}}}}}]}}`
	controller := Controller{Primary: thing, Reconcile: func(_ *Pass, actions *Actions) error { return nil }}
	plugin := &Plugin{CRDs: []json.RawMessage{json.RawMessage(crd)}, Controllers: []Controller{controller}}
	failure := func(spec string, deleting bool) error {
		primary := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"one"},"spec":%s}`, spec)
		return Run(plugin, Desired{Primary: primary, Deleting: deleting, Now: "2026-01-02T03:04:05Z"}, Observed{}).Failure
	}
	for spec, problem := range map[string]string{
		`null`:                                "spec: is missing",
		`"text"`:                              "spec: a mapping would be right",
		`{}`:                                  "spec.size: is missing",
		`{"size":"1"}`:                        "spec.size: a whole number would be right",
		`{"size":1.5}`:                        "spec.size: a whole number would be right",
		`{"size":1,"mode":"c"}`:               "spec.mode: c is none of [a b]",
		`{"size":1,"port":[]}`:                "spec.port: a whole number or a text would be right",
		`{"size":1,"labels":{"x":1}}`:         "spec.labels.x: a text would be right",
		`{"size":1,"list":[{"name":"a"},{}]}`: "spec.list[1].name: is missing",
	} {
		if err := failure(spec, false); err != Invalid(problem) {
			t.Errorf("%s: %v", spec, err)
		}
		if err := failure(spec, true); err != nil {
			t.Errorf("%s, deleted: %v", spec, err)
		}
	}
	if err := failure(`{"size":1,"mode":"a","port":"http","labels":{"x":"1"},"list":null,"more":[1]}`, false); err != nil {
		t.Error(err)
	}
}
