import jsQR from 'jsqr';
import { expect, test } from 'vitest';
import { qrPath } from './qr-code';

/** Draws a path as a reader's camera sees it, some pixels a module. */
function drawn(text: string): { pixels: Uint8ClampedArray; width: number } {
  const scale = 3;
  const { path, side } = qrPath(text);
  const width = side * scale;
  const pixels = new Uint8ClampedArray(width * width * 4).fill(255);
  for (const [, x, y, length] of path.matchAll(/M(\d+) (\d+)h(\d+)v1h-\d+z/g)) {
    for (let dy = 0; dy < scale; dy += 1) {
      for (let dx = 0; dx < Number(length) * scale; dx += 1) {
        pixels.fill(0, ((Number(y) * scale + dy) * width + Number(x) * scale + dx) * 4, ((Number(y) * scale + dy) * width + Number(x) * scale + dx) * 4 + 3);
      }
    }
  }
  return { pixels, width };
}

test.each(['a', 'otpauth://totp/ferrum-edge%20(gw-1.example):ann?secret=JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP&issuer=ferrum-edge%20(gw-1.example)', 'x'.repeat(500)])('a reader reads %s', (text) => {
  const { pixels, width } = drawn(text);
  expect(jsQR(pixels, width, width)?.data).toBe(text);
});
