package pilothouse

// The canonical ABI on Go's memory.
//
// The component model's pointers and lengths have 4 bytes; Go's, on wasm too, have 8, so none of Go's own structs is laid
// out as the contract's are, and everything is read and written field by field. Addresses fit into 4 bytes, as a memory
// does not exceed 4 GiB.

import "unsafe"

// held keeps what the host reads or has written: the garbage collector does not know of it. A call has an instance of its
// own, so that nothing is ever given back.
var held [][]uint64

// block is memory of the host's: 8-byte aligned, as the largest alignment of the contract is that of u64.
type block struct{ at unsafe.Pointer }

func allocate(size int) block {
	words := make([]uint64, size/8+1)
	held = append(held, words)
	return block{unsafe.Pointer(unsafe.SliceData(words))}
}

func (b block) address() uint32 { return uint32(uintptr(b.at)) }

func (b block) putByte(offset int, value uint8) { *(*uint8)(unsafe.Add(b.at, offset)) = value }
func (b block) putU32(offset int, value uint32) { *(*uint32)(unsafe.Add(b.at, offset)) = value }
func (b block) putU64(offset int, value uint64) { *(*uint64)(unsafe.Add(b.at, offset)) = value }

func (b block) putString(offset int, text string) {
	if text == "" {
		return
	}
	content := allocate(len(text))
	copy(unsafe.Slice((*byte)(content.at), len(text)), text)
	b.putU32(offset, content.address())
	b.putU32(offset+4, uint32(len(text)))
}

// putOptional writes an option<string>: a case, then the string.
func (b block) putOptional(offset int, text string) {
	if text != "" {
		b.putByte(offset, 1)
		b.putString(offset+4, text)
	}
}

// putList writes a list whose elements have this size.
func putList[T any](b block, offset, size int, elements []T, put func(block, T)) {
	if len(elements) == 0 {
		return
	}
	list := allocate(size * len(elements))
	for at, element := range elements {
		put(block{unsafe.Add(list.at, at*size)}, element)
	}
	b.putU32(offset, list.address())
	b.putU32(offset+4, uint32(len(elements)))
}

func (b block) u32(offset int) uint32 { return *(*uint32)(unsafe.Add(b.at, offset)) }
func (b block) bool(offset int) bool  { return *(*uint8)(unsafe.Add(b.at, offset)) != 0 }

func (b block) string(offset int) string { return lift(b.u32(offset), b.u32(offset+4)) }

func (b block) optional(offset int) string {
	if !b.bool(offset) {
		return ""
	}
	return b.string(offset + 4)
}

// list reads a list whose elements have this size.
func list[T any](address, length uint32, size int, read func(block) T) []T {
	elements := make([]T, 0, length)
	for at := range int(length) {
		elements = append(elements, read(block{unsafe.Add(pointer(address), at*size)}))
	}
	return elements
}

func lift(address, length uint32) string {
	return unsafe.String((*byte)(pointer(address)), length)
}

// pointer turns an address of the host's, which cabi_realloc gave it, back into a pointer.
func pointer(address uint32) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&[1]uintptr{uintptr(address)}))
}

// arena is memory for the adapter between WASI 0.1 and 0.2. The adapter needs it before Go's runtime has started, so that
// no function of Go can hand it out: `pilothouse-componentize` knows it by its first bytes, and adds a function that does.
// Among Go's own data it lies where Go's allocator, which takes all memory beyond for its own, does not come.
var arena = [4 << 16]byte{
	'p', 'i', 'l', 'o', 't', 'h', 'o', 'u', 's', 'e', ' ', 'a', 'd', 'a', 'p', 't', 'e', 'r', ' ', 'a', 'r', 'e', 'n', 'a',
	' ', '2', '5', '6', ' ', 'K', 'i', 'B',
}

//go:wasmexport cabi_realloc
func realloc(old unsafe.Pointer, oldSize, alignment, size uint32) unsafe.Pointer {
	// Also names it: the linker leaves out what nothing reads.
	if arena[len(arena)-1] != 0 {
		panic("pilothouse: the adapter wrote beyond its arena")
	}
	fresh := allocate(int(size))
	copy(unsafe.Slice((*byte)(fresh.at), size), unsafe.Slice((*byte)(old), oldSize))
	return fresh.at
}
