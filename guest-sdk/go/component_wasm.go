package pilothouse

// The component's exports and imports, in the canonical ABI. Sizes and offsets are those of the contract's records:
// reference 56 bytes, action 80 with its value at 8, outcome 24.

import "unsafe"

//go:wasmimport pilothouse:operator/log@0.1.0 write
func logWrite(level uint32, message unsafe.Pointer, length uint32)

func write(level Level, message string) {
	logWrite(uint32(level), unsafe.Pointer(unsafe.StringData(message)), uint32(len(message)))
}

func plugin() *Plugin {
	if served == nil {
		panic("pilothouse: nothing is served: `func init() { pilothouse.Serve(...) }` would be right")
	}
	return served
}

//go:wasmexport pilothouse:operator/reconciler@0.1.0#describe
func describe() unsafe.Pointer {
	result := allocate(8)
	result.putString(0, text(plugin()))
	return result.at
}

//go:wasmexport pilothouse:operator/reconciler@0.1.0#reconcile
func reconcile(
	primary, primaryLength, deleting, config, configLength, now, nowLength uint32, seed uint64,
	children, childrenLength, related, relatedLength, last, lastLength uint32,
) unsafe.Pointer {
	desired := Desired{
		Primary:  lift(primary, primaryLength),
		Deleting: deleting != 0,
		Config:   lift(config, configLength),
		Now:      lift(now, nowLength),
		Seed:     seed,
	}
	observed := Observed{
		Children: list(children, childrenLength, 8, func(b block) string { return b.string(0) }),
		Related:  list(related, relatedLength, 20, liftAnswer),
		Last:     list(last, lastLength, 80, liftRejected),
	}
	outcome := Run(plugin(), desired, observed)
	result := allocate(24)
	putList(result, 0, 80, outcome.Actions, putAction)
	if outcome.Failure != nil {
		result.putByte(8, 1)
		if _, retry := outcome.Failure.(Retry); retry {
			result.putByte(12, 1)
		}
		result.putString(16, outcome.Failure.Error())
	}
	return result.at
}

func liftAnswer(b block) AnswerText {
	objects := list(b.u32(12), b.u32(16), 8, func(b block) string { return b.string(0) })
	return AnswerText{Query: b.string(0), Complete: b.bool(8), Objects: objects}
}

func liftRejected(b block) Rejected {
	rejected := Rejected{Index: b.u32(0), Reason: b.string(64), Message: b.string(72)}
	if b.bool(4) {
		target := block{unsafe.Add(b.at, 8)}
		rejected.Target = &Reference{
			Resource:  Resource{Group: target.string(0), Version: target.string(8), Kind: target.string(16)},
			Namespace: target.optional(24),
			Name:      target.string(36),
			UID:       target.optional(44),
		}
	}
	return rejected
}

func putKind(b block, offset int, resource Resource) {
	b.putString(offset, resource.Group)
	b.putString(offset+8, resource.Version)
	b.putString(offset+16, resource.Kind)
}

func putReference(b block, offset int, reference Reference) {
	putKind(b, offset, reference.Resource)
	b.putOptional(offset+24, reference.Namespace)
	b.putString(offset+36, reference.Name)
	b.putOptional(offset+44, reference.UID)
}

func putKeyValue(b block, pair KeyValue) {
	b.putString(0, pair.Key)
	b.putString(8, pair.Value)
}

func putRandomKey(b block, random RandomKey) {
	b.putString(0, random.Key)
	b.putU32(8, random.Length)
	b.putByte(12, uint8(random.Alphabet))
}

// putAction writes the case's number, which is its position in the contract, and at 8 its value.
func putAction(b block, action Action) {
	switch action := action.(type) {
	case Apply:
		b.putString(8, action.Object)
		b.putString(16, action.Options)
	case Deletion:
		b.putByte(0, 1)
		putReference(b, 8, action.Target)
		b.putString(64, action.Options)
	case TargetPatch:
		b.putByte(0, 2)
		putReference(b, 8, action.Target)
		b.putString(64, action.Patch)
		b.putString(72, action.Options)
	case SecretTemplate:
		b.putByte(0, 3)
		b.putString(8, action.Name)
		putList(b, 16, 16, action.Literals, putKeyValue)
		putList(b, 24, 16, action.Random, putRandomKey)
		putList(b, 32, 16, action.Composed, putKeyValue)
		b.putString(40, action.Options)
	case SetStatus:
		b.putByte(0, 4)
		b.putString(8, string(action))
	case Event:
		b.putByte(0, 5)
		if action.Warning {
			b.putByte(8, 1)
		}
		b.putString(12, action.Reason)
		b.putString(20, action.Message)
	case Query:
		b.putByte(0, 6)
		b.putString(8, action.ID)
		putKind(b, 16, action.Resource)
		b.putOptional(40, action.Namespace)
		b.putOptional(52, action.Name)
		b.putString(64, action.Options)
	case RequeueAfter:
		b.putByte(0, 7)
		b.putU64(8, uint64(action))
	case Release:
		b.putByte(0, 8)
	case Extension:
		b.putByte(0, 9)
		b.putString(8, action.Name)
		b.putString(16, action.Body)
	}
}
