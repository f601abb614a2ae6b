module pilothouse.dev/tests/guests/probe-go

go 1.24

require pilothouse.dev/sdk v0.0.0

replace pilothouse.dev/sdk => ../../../guest-sdk/go
