// A Proxy-Wasm filter in AssemblyScript, without a library: counts requests by their path in the data that instances share, and has
// each request carry its number.
//
//	asc guest.ts -O --runtime stub --use abort=guest/abort --exportStart _initialize -o guest.wasm

@external("env", "proxy_log")
declare function proxyLog(level: u32, text: usize, size: usize): u32;
@external("env", "proxy_get_header_map_value")
declare function getHeader(map: u32, name: usize, nameSize: usize, value: usize, size: usize): u32;
@external("env", "proxy_replace_header_map_value")
declare function setHeader(map: u32, name: usize, nameSize: usize, value: usize, size: usize): u32;
@external("env", "proxy_get_shared_data")
declare function getShared(key: usize, keySize: usize, value: usize, size: usize, cas: usize): u32;
@external("env", "proxy_set_shared_data")
declare function setShared(key: usize, keySize: usize, value: usize, size: usize, cas: u32): u32;

const CAS_MISMATCH: u32 = 8;

// Where the host writes places, sizes and numbers.
const data = memory.data(4);
const size = memory.data(4);
const cas = memory.data(4);

export function proxy_abi_version_0_2_1(): void {}

// Nothing is ever given back: the gateway replaces an instance that has grown large.
export function proxy_on_memory_allocate(size: usize): usize {
  return heap.alloc(size);
}

export function proxy_on_context_create(context: u32, parent: u32): void {}

export function proxy_on_request_headers(context: u32, count: u32, end: u32): u32 {
  const name = String.UTF8.encode(":path");
  if (getHeader(0, changetype<usize>(name), name.byteLength, data, size) != 0) return 0;
  const path = String.UTF8.decodeUnsafe(load<u32>(data), load<u32>(size));
  const number = String.UTF8.encode(next(path).toString());
  const field = String.UTF8.encode("x-number");
  setHeader(0, changetype<usize>(field), field.byteLength, changetype<usize>(number), number.byteLength);
  return 0;
}

// Others may count at the same time.
function next(path: string): i64 {
  const key = String.UTF8.encode(path);
  for (let tries = 0; tries < 100; tries++) {
    let known: i64 = 0;
    let version: u32 = 0;
    if (getShared(changetype<usize>(key), key.byteLength, data, size, cas) == 0) {
      known = I64.parseInt(String.UTF8.decodeUnsafe(load<u32>(data), load<u32>(size)));
      version = load<u32>(cas);
    }
    const value = String.UTF8.encode((known + 1).toString());
    const done = setShared(changetype<usize>(key), key.byteLength, changetype<usize>(value), value.byteLength, version);
    if (done != CAS_MISMATCH) return known + 1;
  }
  return -1;
}

export function abort(message: usize, file: usize, line: u32, column: u32): void {
  const text = String.UTF8.encode("aborted at line " + line.toString());
  proxyLog(4, changetype<usize>(text), text.byteLength);
  unreachable();
}
