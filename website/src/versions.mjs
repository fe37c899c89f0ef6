import { readFileSync } from 'node:fs';

/** The version of the gateway whose sources these are. */
export const version = readFileSync(`${process.cwd()}/../Cargo.toml`, 'utf8').match(/^version = "([^"]+)"/m)[1];

/** Versions whose sites stand in folders beside this one, by name: `SITE_VERSIONS="0.2.0 0.1.0"`. */
export const others = (process.env.SITE_VERSIONS ?? '').split(/\s+/).filter((name) => name && name !== version);

const unsafe = others.find((name) => !/^[\w.-]+$/.test(name) || name.startsWith('.'));
if (unsafe) throw new Error(`SITE_VERSIONS: ${unsafe} is no folder's name`);
