// A Proxy-Wasm filter in plain Go, without an SDK: sets a header with the module's configuration, and counts.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o guest.wasm .
package main

import (
	"strconv"
	"unsafe"
)

//go:wasmimport env proxy_log
func proxyLog(level uint32, text unsafe.Pointer, size uint32) uint32

//go:wasmimport env proxy_get_buffer_bytes
func bufferBytes(buffer, start, max uint32, data, size unsafe.Pointer) uint32

//go:wasmimport env proxy_replace_header_map_value
func replaceHeader(fields uint32, name unsafe.Pointer, nameSize uint32, value unsafe.Pointer, valueSize uint32) uint32

var (
	header   string
	requests int
	given    []byte
)

//go:wasmexport proxy_abi_version_0_2_1
func abiVersion() {}

// The host writes into what this returns; it is kept until the next time.
//
//go:wasmexport proxy_on_memory_allocate
func allocate(size uint32) unsafe.Pointer {
	given = make([]byte, size)
	return unsafe.Pointer(unsafe.SliceData(given))
}

//go:wasmexport proxy_on_configure
func onConfigure(context, size uint32) uint32 {
	var data, length uint32
	if size > 0 && bufferBytes(7, 0, size, unsafe.Pointer(&data), unsafe.Pointer(&length)) == 0 {
		header = string(given[:length])
	}
	return 1
}

//go:wasmexport proxy_on_request_headers
func onRequestHeaders(context, count, end uint32) uint32 {
	requests++
	set("x-configured", header)
	set("x-requests", strconv.Itoa(requests))
	text := "seen"
	proxyLog(2, unsafe.Pointer(unsafe.StringData(text)), uint32(len(text)))
	return 0
}

func set(name, value string) {
	replaceHeader(0, unsafe.Pointer(unsafe.StringData(name)), uint32(len(name)),
		unsafe.Pointer(unsafe.StringData(value)), uint32(len(value)))
}

func main() {}
