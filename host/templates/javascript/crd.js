// The CustomResourceDefinition, which `make package` prints into deploy/.
export default {
  "apiVersion": "apiextensions.k8s.io/v1",
  "kind": "CustomResourceDefinition",
  "metadata": {
    "name": "{{plural}}.{{group}}"
  },
  "spec": {
    "group": "{{group}}",
    "names": {
      "kind": "{{kind}}",
      "listKind": "{{kind}}List",
      "plural": "{{plural}}",
      "singular": "{{singular}}"
    },
    "scope": "Namespaced",
    "versions": [
      {
        "name": "{{version}}",
        "additionalPrinterColumns": [
          {
            "name": "Message",
            "jsonPath": ".spec.message",
            "type": "string"
          },
          {
            "name": "Age",
            "jsonPath": ".metadata.creationTimestamp",
            "type": "date"
          }
        ],
        "schema": {
          "openAPIV3Schema": {
            "description": "A message, kept in a ConfigMap.",
            "properties": {
              "spec": {
                "description": "Desired state of the {{kind}}.",
                "properties": {
                  "message": {
                    "description": "What to say.",
                    "maxLength": 1024,
                    "minLength": 1,
                    "type": "string"
                  }
                },
                "required": [
                  "message"
                ],
                "type": "object"
              },
              "status": {
                "description": "What there is.",
                "properties": {
                  "conditions": {
                    "description": "What holds and what does not.",
                    "items": {
                      "properties": {
                        "lastTransitionTime": {
                          "description": "When the status last changed.",
                          "format": "date-time",
                          "type": "string"
                        },
                        "message": {
                          "description": "Why, for people.",
                          "maxLength": 32768,
                          "type": "string"
                        },
                        "observedGeneration": {
                          "description": "Generation of the object that this was said of.",
                          "format": "int64",
                          "minimum": 0,
                          "type": "integer"
                        },
                        "reason": {
                          "description": "Why, in one word for machines.",
                          "maxLength": 1024,
                          "minLength": 1,
                          "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                          "type": "string"
                        },
                        "status": {
                          "description": "Whether it holds.",
                          "enum": [
                            "True",
                            "False",
                            "Unknown"
                          ],
                          "type": "string"
                        },
                        "type": {
                          "description": "What the condition is about.",
                          "maxLength": 316,
                          "type": "string"
                        }
                      },
                      "required": [
                        "type",
                        "status",
                        "lastTransitionTime",
                        "reason",
                        "message"
                      ],
                      "type": "object"
                    },
                    "type": "array",
                    "x-kubernetes-list-map-keys": [
                      "type"
                    ],
                    "x-kubernetes-list-type": "map"
                  },
                  "configMap": {
                    "description": "Name of the ConfigMap.",
                    "type": "string"
                  },
                  "observedGeneration": {
                    "description": "Generation of the object that this status is about.",
                    "format": "int64",
                    "type": "integer"
                  }
                },
                "type": "object"
              }
            },
            "required": [
              "spec"
            ],
            "type": "object"
          }
        },
        "served": true,
        "storage": true,
        "subresources": {
          "status": {}
        }
      }
    ]
  }
};
