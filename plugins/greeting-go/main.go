// One ConfigMap for each Greeting, in Go. The kind and its CustomResourceDefinition are those of the Rust plugin
// `config-map`; of the two one is installed.
package main

import (
	_ "embed"
	"encoding/json"

	pilothouse "pilothouse.dev/sdk"
)

//go:embed crd.json
var crd json.RawMessage

func init() {
	pilothouse.Serve(pilothouse.Plugin{
		Name:    "greeting-go",
		Version: "0.1.0",
		CRDs:    []json.RawMessage{crd},
		Controllers: []pilothouse.Controller{{
			Primary:   pilothouse.Namespaced("example.com", "v1alpha1", "greetings", "Greeting"),
			Children:  []pilothouse.Child{{Resource: pilothouse.ConfigMap}},
			Reconcile: reconcile,
		}},
	})
}

func reconcile(pass *pilothouse.Pass, actions *pilothouse.Actions) error {
	var spec struct{ Text string }
	if err := pass.Spec(&spec); err != nil {
		return err
	}
	object := pilothouse.ConfigMap.Object(pass.Name)
	object["data"] = map[string]string{"text": spec.Text}
	actions.Apply(object)

	ready := pilothouse.NewCondition("Ready", false, "Writing", "the ConfigMap is not there yet")
	if pass.Child(pilothouse.ConfigMap, pass.Name) != nil {
		ready = pilothouse.NewCondition("Ready", true, "Written", "the ConfigMap is there")
	}
	actions.SetStatus(map[string]any{"conditions": []pilothouse.Condition{ready}})
	return nil
}

func main() {}
