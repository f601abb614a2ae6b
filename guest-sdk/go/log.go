package pilothouse

import "fmt"

// Level of a line in the host's log.
type Level uint8

// In the order of the contract.
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// Logf writes a line to the host's log, under the pass.
func Logf(level Level, format string, arguments ...any) {
	write(level, fmt.Sprintf(format, arguments...))
}
