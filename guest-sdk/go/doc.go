// Package pilothouse is what a Kubernetes operator in Go is written with: a function from what there is to what shall be,
// which the Pilothouse host runs as a WebAssembly component, without network, files or cluster credentials.
//
//	func init() {
//		pilothouse.Serve(pilothouse.Plugin{
//			Name: "greeter", Version: "0.1.0",
//			Controllers: []pilothouse.Controller{{
//				Primary:   pilothouse.Namespaced("example.com", "v1", "greetings", "Greeting"),
//				Children:  []pilothouse.Child{{Resource: pilothouse.ConfigMap}},
//				Reconcile: greet,
//			}},
//		})
//	}
//
//	func main() {}
//
// A component has no main: `init` says what there is to serve, and the host calls it. Each pass begins in a fresh instance,
// so that nothing is remembered between passes. Package time shows the time of the pass and a sleep is over at once;
// math/rand and the order of maps are functions of its seed; files and network are errors.
package pilothouse
