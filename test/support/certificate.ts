import { execFile } from 'node:child_process';
import { isIP } from 'node:net';
import { promisify } from 'node:util';

/**
 * Makes a certificate that signs itself, for one name or address.
 * @param files certificate and key
 */
export async function makeCertificate(
  name: string,
  files: readonly [string, string],
): Promise<void> {
  const key = [
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-keyout',
    files[1],
  ];
  const kind = isIP(name) ? 'IP' : 'DNS';
  const subject = ['-subj', `/CN=${name}`, '-addext', `subjectAltName=${kind}:${name}`];

  await promisify(execFile)('openssl', [
    'req',
    '-x509',
    ...key,
    '-days',
    '2',
    ...subject,
    '-out',
    files[0],
  ]);
}
