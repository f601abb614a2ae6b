package pilothouse

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
)

// What of a CustomResourceDefinition's schema is checked before Reconcile is called: what is required is there, and what is
// there is of its type. The API server checks that, and more, of what is written today. It does not of an object that was
// stored before the schema said so, or where the definition in the cluster is another one; to encoding/json a field that is
// missing there is a zero.
type schema struct {
	Type        string            `json:"type"`
	Required    []string          `json:"required"`
	Properties  map[string]schema `json:"properties"`
	More        *maybeSchema      `json:"additionalProperties"`
	Items       *schema           `json:"items"`
	Enum        []any             `json:"enum"`
	Nullable    bool              `json:"nullable"`
	IntOrString bool              `json:"x-kubernetes-int-or-string"`
}

// A schema, or a boolean, which says nothing of the fields.
type maybeSchema struct{ schema }

func (m *maybeSchema) UnmarshalJSON(text []byte) error {
	if string(text) == "true" || string(text) == "false" {
		return nil
	}
	return json.Unmarshal(text, &m.schema)
}

var typeNames = map[string]string{
	"object": "a mapping", "array": "a list", "string": "a text", "boolean": "true or false", "integer": "a whole number",
	"number": "a number",
}

// The first thing that is wrong with the spec of an object, by the plugin's definition of its kind; empty if nothing is.
func (p *Plugin) problem(primary Object) string {
	version, found := p.schemaOf(primary)
	spec, known := version.Properties["spec"]
	if !found || !known {
		return ""
	}
	if primary["spec"] == nil {
		if slices.Contains(version.Required, "spec") {
			return "spec: is missing"
		}
		return ""
	}
	return spec.problem("spec", primary["spec"])
}

func (p *Plugin) schemaOf(primary Object) (schema, bool) {
	apiVersion, _ := primary["apiVersion"].(string)
	group, version, _ := strings.Cut(apiVersion, "/")
	for _, text := range p.CRDs {
		var crd struct {
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema schema }
				}
			}
		}
		if json.Unmarshal(text, &crd) != nil || crd.Spec.Group != group || crd.Spec.Names.Kind != primary["kind"] {
			continue
		}
		for _, one := range crd.Spec.Versions {
			if one.Name == version {
				return one.Schema.OpenAPIV3Schema, true
			}
		}
	}
	return schema{}, false
}

func (s schema) problem(path string, value any) string {
	if s.IntOrString {
		if isOf(value, "integer") || isOf(value, "string") {
			return ""
		}
		return path + ": a whole number or a text would be right"
	}
	if s.Type != "" && !isOf(value, s.Type) {
		return fmt.Sprintf("%s: %s would be right", path, typeNames[s.Type])
	}
	if s.Enum != nil && !slices.Contains(s.Enum, value) {
		return fmt.Sprintf("%s: %v is none of %v", path, value, s.Enum)
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range s.Required {
			if value[name] == nil && !s.Properties[name].Nullable {
				return fmt.Sprintf("%s.%s: is missing", path, name)
			}
		}
		names := make([]string, 0, len(value))
		for name := range value {
			names = append(names, name)
		}
		// The first one is the same in each pass.
		sort.Strings(names)
		for _, name := range names {
			below, known := s.Properties[name]
			if !known && s.More != nil {
				below = s.More.schema
			}
			// Null is as good as absent.
			if value[name] != nil {
				if found := below.problem(path+"."+name, value[name]); found != "" {
					return found
				}
			}
		}
	case []any:
		for at, item := range value {
			if s.Items != nil && item != nil {
				if found := s.Items.problem(fmt.Sprintf("%s[%d]", path, at), item); found != "" {
					return found
				}
			}
		}
	}
	return ""
}

func isOf(value any, kind string) bool {
	switch value := value.(type) {
	case map[string]any:
		return kind == "object"
	case []any:
		return kind == "array"
	case string:
		return kind == "string"
	case bool:
		return kind == "boolean"
	case float64:
		return kind == "number" || kind == "integer" && value == math.Trunc(value)
	default:
		return false
	}
}
