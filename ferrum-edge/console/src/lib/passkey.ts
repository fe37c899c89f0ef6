// Passkeys: what the gateway sends, as browsers want it, and back.
import { logIn, request, session, talk } from './api';

/** Base64url, which the API speaks, and bytes, which browsers do. */
export const bytesOf = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (letter) => letter.charCodeAt(0));
export const textOf = (bytes: ArrayBuffer): string => btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

/** Whether this browser makes passkeys for this page: there are none for addresses. */
export const canUsePasskeys = (): boolean => isSecureContext && 'PublicKeyCredential' in window && !/^[\d.]+$|^\[/.test(location.hostname);

const PATIENCE = 120_000;

/** Has the browser make a passkey of the user who is logged in, and the gateway keep it. */
export async function makePasskey(password: string, label: string): Promise<void> {
  const path = `/v1/users/${encodeURIComponent(session.value!.name)}/passkeys`;
  const { data } = await request('POST', path, { password });
  const made = (await navigator.credentials.create({
    publicKey: {
      challenge: bytesOf(data.challenge),
      rp: { id: data.host, name: `ferrum-edge ${data.host}` },
      user: { id: bytesOf(data.user.id), name: data.user.name, displayName: data.user.name },
      pubKeyCredParams: data.algorithms.map((alg: number) => ({ type: 'public-key' as const, alg })),
      excludeCredentials: data.exclude.map((id: string) => ({ type: 'public-key' as const, id: bytesOf(id) })),
      authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
      attestation: 'none',
      timeout: PATIENCE,
    },
  })) as PublicKeyCredential;
  const response = made.response as AuthenticatorAttestationResponse;
  await request('POST', `${path}/confirm`, { label, client_data: textOf(response.clientDataJSON), authenticator_data: textOf(response.getAuthenticatorData()) });
}

/** Logs in with whichever passkey of this host the user picks. */
export async function logInByPasskey(): Promise<void> {
  const { challenge, host } = await talk('passkey');
  const used = (await navigator.credentials.get({ publicKey: { challenge: bytesOf(challenge), rpId: host, userVerification: 'required', timeout: PATIENCE } })) as PublicKeyCredential;
  const response = used.response as AuthenticatorAssertionResponse;
  const passkey = { id: textOf(used.rawId), client_data: textOf(response.clientDataJSON), authenticator_data: textOf(response.authenticatorData), signature: textOf(response.signature) };
  await logIn({ passkey });
}
