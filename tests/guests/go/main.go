// A plugin that reaches for everything that Go has. Its status says what it found: nothing of the machine, and the same on
// each run. With spec.behaviour "steady" it does what the guest `steady` does, for comparison.
package main

import (
	crypto "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	pilothouse "pilothouse.dev/sdk"
)

const children = 5

func init() {
	pilothouse.Serve(pilothouse.Plugin{
		Name:    "probe-go",
		Version: "0.1.0",
		Controllers: []pilothouse.Controller{{
			Primary:   pilothouse.Namespaced("test.pilothouse.dev", "v1", "probes", "Probe"),
			Children:  []pilothouse.Child{{Resource: pilothouse.ConfigMap}},
			Reconcile: reconcile,
		}},
	})
}

func main() {}

var calls int

func reconcile(pass *pilothouse.Pass, actions *pilothouse.Actions) error {
	var spec struct{ Behaviour, Text string }
	if err := pass.Spec(&spec); err != nil {
		return err
	}
	switch spec.Behaviour {
	case "steady":
		for position := range children {
			object := pilothouse.ConfigMap.Object(fmt.Sprintf("%s-%d", pass.Name, position))
			object["data"] = map[string]string{"text": spec.Text, "position": strconv.Itoa(position)}
			actions.Apply(object)
		}
		actions.SetStatus(map[string]bool{"done": true})
	case "loop":
		for {
			calls++
		}
	case "grow":
		held := make([][]byte, 0)
		for {
			held = append(held, make([]byte, 1<<20))
		}
	case "raise":
		return errors.New("words of a mistake")
	case "remember":
		calls++
		actions.SetStatus(map[string]int{"calls": calls})
	case "every":
		every(actions)
	default:
		actions.SetStatus(look(pass))
	}
	return nil
}

// every is each action once, with each of its fields.
func every(actions *pilothouse.Actions) {
	target := pilothouse.Reference{Resource: pilothouse.Pod, Namespace: "there", Name: "pod", UID: "uid"}
	actions.Apply(pilothouse.ConfigMap.Object("a"))
	actions.Add(pilothouse.Deletion{Target: target, Options: `{"propagation":"orphan"}`})
	actions.Add(pilothouse.TargetPatch{Target: target, Patch: "{}", Options: `{"subresource":"status"}`})
	actions.Add(pilothouse.SecretTemplate{
		Name:     "secret",
		Literals: []pilothouse.KeyValue{{Key: "user", Value: "app"}, {Key: "db", Value: "app"}},
		Random:   []pilothouse.RandomKey{{Key: "password", Length: 32, Alphabet: pilothouse.Base64URL}},
		Composed: []pilothouse.KeyValue{{Key: "uri", Value: "$(user)"}},
		Options:  `{"type":"Opaque"}`,
	})
	actions.SetStatus(map[string]bool{})
	actions.Warningf("Reason", "message %d", 1)
	actions.Add(pilothouse.Query{ID: "id", Resource: pilothouse.Deployment, Namespace: "there", Name: "n", Options: "{}"})
	actions.RequeueAfter(5 * time.Second)
	actions.Release()
	actions.Add(pilothouse.Extension{Name: "example.com/thing", Body: "1"})
}

func look(pass *pilothouse.Pass) map[string]any {
	pilothouse.Logf(pilothouse.Info, "looking")
	fmt.Println("to stdout")
	fmt.Fprintln(os.Stderr, "to stderr")
	_, read := os.ReadFile("/etc/passwd")
	_, written := os.Create("planted")
	_, dialled := net.Dial("tcp", "127.0.0.1:80")
	_, listened := net.Listen("tcp", "127.0.0.1:0")
	executed := exec.Command("/bin/ls").Run()
	begun := time.Now()
	time.Sleep(time.Hour)
	secret := make([]byte, 8)
	crypto.Read(secret)
	order := ""
	for letter := range map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6} {
		order += letter
	}
	return map[string]any{
		"refused": []bool{read != nil, written != nil, dialled != nil, executed != nil},
		// The standard library pretends a network of its own, within the process: nobody else is there.
		"listened":     listened == nil,
		"variables":    len(os.Environ()),
		"unixSeconds":  begun.Unix(),
		"now":          pass.Now.Equal(begun),
		"sleptSeconds": time.Since(begun).Seconds(),
		"random":       []string{strconv.FormatUint(rand.Uint64(), 16), hex.EncodeToString(secret)},
		"order":        order,
	}
}
