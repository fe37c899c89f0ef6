// A QR code (ISO/IEC 18004) as one path of an SVG, dark on white in both themes, with the quiet zone that readers need.
import { generate } from 'lean-qr';
import { useMemo } from 'preact/hooks';

/** Modules of white around the code. */
const QUIET = 4;

/** The path of the dark modules, and the modules of a side with the quiet zone. */
export function qrPath(text: string): { path: string; side: number } {
  const code = generate(text);
  let path = '';
  for (let y = 0; y < code.size; y += 1) {
    for (let x = 0; x < code.size; x += 1) {
      if (!code.get(x, y)) continue;
      const from = x;
      while (x + 1 < code.size && code.get(x + 1, y)) x += 1;
      path += `M${from + QUIET} ${y + QUIET}h${x + 1 - from}v1h-${x + 1 - from}z`;
    }
  }
  return { path, side: code.size + 2 * QUIET };
}

export function QrCode({ text, label }: { text: string; label: string }) {
  const { path, side } = useMemo(() => qrPath(text), [text]);
  return (
    <svg class="qr-code" role="img" aria-label={label} viewBox={`0 0 ${side} ${side}`} shape-rendering="crispEdges">
      <rect width={side} height={side} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  );
}
