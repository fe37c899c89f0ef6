// A change as a line for a shell: by curl, and by the command line of the gateway. No line contains a secret: those that a user
// types are variables of the shell.
import { quoted } from './format';
import { toYaml } from './yaml';

/** A change as the admin API takes it. */
export interface Call {
  method: string;
  path: string;
  body?: unknown;
  /** Fields of the body that are secrets, each with the environment variable that is to contain it. */
  secrets?: Record<string, string>;
}

/** The same as words after `ferrum-edge`; the document goes to a file, which the last word names. */
export interface CliWords {
  words: string[];
  document?: unknown;
}

const FILE = 'change.yaml';

export function curlLine(origin: string, { method, path, body, secrets }: Call): string {
  const head = `curl -X ${method} ${quoted(origin + path)} \\\n  -H "Authorization: Bearer $FERRUM_ADMIN_TOKEN"`;
  const json = `${head} \\\n  -H 'Content-Type: application/json' \\\n  -d `;
  if (secrets) {
    // jq reads them from the environment: they are in no argument that other users of the machine see, and any character is allowed.
    const plain = Object.entries(body ?? {}).map(([key, value]) => `${key}: ${JSON.stringify(value)}`);
    const fields = [...plain, ...Object.entries(secrets).map(([key, variable]) => `${key}: env.${variable}`)];
    return `jq -n ${quoted(`{ ${fields.join(', ')} }`)} | ${json}@-`;
  }
  return body === undefined ? head : json + quoted(JSON.stringify(body));
}

export function cliLine(origin: string, { words, document }: CliWords): string {
  const line = `ferrum-edge ${words.map(quoted).join(' ')}${document === undefined ? '' : ` ${FILE}`} --admin ${quoted(origin)}`;
  if (document === undefined) return line;
  const yaml = toYaml(document);
  // A line of the document must not end it.
  let end = 'EOF';
  while (yaml.split('\n').includes(end)) end += 'F';
  return `cat > ${FILE} <<'${end}'\n${yaml}${end}\n${line}`;
}
