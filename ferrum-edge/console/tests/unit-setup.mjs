// What modules ask a browser for when they are loaded.
globalThis.location ??= { hash: '', origin: 'http://127.0.0.1:9000' };
globalThis.addEventListener ??= () => undefined;
