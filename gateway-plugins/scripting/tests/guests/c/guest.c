// A Proxy-Wasm filter in C, without a library: answers for /closed itself, sets a header with the module's configuration, and has
// responses in capitals.
//
//	clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -Wl,--allow-undefined -o guest.wasm guest.c

typedef unsigned int u32;

#define EXPORT(name) __attribute__((export_name(name)))
#define IMPORT(name) __attribute__((import_module("env"), import_name(name)))

IMPORT("proxy_log") u32 proxy_log(u32 level, const char *text, u32 size);
IMPORT("proxy_get_buffer_bytes") u32 get_buffer(u32 buffer, u32 start, u32 max, char **data, u32 *size);
IMPORT("proxy_set_buffer_bytes") u32 set_buffer(u32 buffer, u32 start, u32 size, const char *data, u32 length);
IMPORT("proxy_get_header_map_value")
u32 get_header(u32 map, const char *name, u32 name_size, char **value, u32 *size);
IMPORT("proxy_replace_header_map_value")
u32 set_header(u32 map, const char *name, u32 name_size, const char *value, u32 size);
IMPORT("proxy_remove_header_map_value") u32 remove_header(u32 map, const char *name, u32 name_size);
IMPORT("proxy_send_local_response")
u32 reply(u32 status, const char *details, u32 details_size, const char *body, u32 body_size, const char *headers,
          u32 headers_size, int grpc_status);

enum { REQUEST = 0, RESPONSE = 2, RESPONSE_BODY = 1, CONFIGURATION = 7, CONTINUE = 0, PAUSE = 1, INFO = 2 };

#define LENGTH(text) (sizeof(text) - 1)

// What the host hands over is used up before it hands over more; the configuration is copied.
static char room[1 << 20];
static char configured[256];
static u32 configured_size;

EXPORT("proxy_abi_version_0_2_1") void abi_version(void) {}

EXPORT("proxy_on_memory_allocate") char *allocate(u32 size) { return size <= sizeof room ? room : 0; }

EXPORT("proxy_on_configure") u32 on_configure(u32 context, u32 size) {
  char *data;
  u32 length = 0;
  if (size > sizeof configured) return 0;
  if (size > 0 && get_buffer(CONFIGURATION, 0, size, &data, &length) != 0) return 0;
  for (u32 n = 0; n < length; n++) configured[n] = data[n];
  configured_size = length;
  return 1;
}

EXPORT("proxy_on_request_headers") u32 on_request(u32 context, u32 count, u32 end) {
  static const char closed[] = "/closed";
  char *path;
  u32 size = 0, same = 0;
  get_header(REQUEST, ":path", LENGTH(":path"), &path, &size);
  while (same < size && same < LENGTH(closed) && path[same] == closed[same]) same++;
  if (size == LENGTH(closed) && same == size) {
    reply(403, 0, 0, "closed\n", LENGTH("closed\n"), 0, 0, -1);
    return PAUSE;
  }
  proxy_log(INFO, "passes", LENGTH("passes"));
  set_header(REQUEST, "x-configured", LENGTH("x-configured"), configured, configured_size);
  return CONTINUE;
}

EXPORT("proxy_on_response_headers") u32 on_response(u32 context, u32 count, u32 end) {
  remove_header(RESPONSE, "content-length", LENGTH("content-length"));
  return CONTINUE;
}

EXPORT("proxy_on_response_body") u32 on_response_body(u32 context, u32 size, u32 end) {
  char *data;
  u32 length = 0;
  if (size == 0 || get_buffer(RESPONSE_BODY, 0, size, &data, &length) != 0) return CONTINUE;
  for (u32 n = 0; n < length; n++) {
    if (data[n] >= 'a' && data[n] <= 'z') data[n] -= 'a' - 'A';
  }
  set_buffer(RESPONSE_BODY, 0, size, data, length);
  return CONTINUE;
}
