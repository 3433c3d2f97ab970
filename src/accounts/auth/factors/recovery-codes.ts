import { createHash } from 'node:crypto';
import { Secret } from 'otpauth';
import type { QueryControl } from '../../../control/database.ts';

/** The recovery codes that a person has at a time. */
const codesPerPerson = 10;
/** Bytes of a code: 80 bits, which nobody guesses. */
const codeBytes = 10;

const removeCodes = 'delete from recovery_codes where tenant_id = $1 and user_id = $2';
const insertCodes = `
  insert into recovery_codes (tenant_id, user_id, hash) select $1, $2, unnest($3::bytea[])`;

/**
 * Makes new recovery codes of a person, in place of those from before.
 * @returns the codes, which no other response has
 */
export async function makeRecoveryCodes(
  query: QueryControl,
  tenantId: number,
  userId: number,
): Promise<string[]> {
  const codes = Array.from({ length: codesPerPerson }, createCode);
  await query('remove_recovery_codes', removeCodes, [tenantId, userId]);
  await query('insert_recovery_codes', insertCodes, [tenantId, userId, codes.map(hashOfCode)]);

  return codes;
}

const takeCode = `
  update recovery_codes set used_at = now()
   where tenant_id = $1 and user_id = $2 and hash = $3 and used_at is null returning id`;

/** Takes a recovery code of a person, which is then used. Returns false for any other text. */
export async function takeRecoveryCode(
  query: QueryControl,
  tenantId: number,
  userId: number,
  code: string,
): Promise<boolean> {
  const taken = await query('take_recovery_code', takeCode, [tenantId, userId, hashOfCode(code)]);
  return taken.length > 0;
}

/** Returns 80 random bits in base 32 (RFC 4648 §6), in four groups. */
function createCode(): string {
  const { base32 } = new Secret({ size: codeBytes });
  return (base32.toLowerCase().match(/.{4}/g) ?? []).join('-');
}

/** SHA-256 of a code, however it was typed. */
function hashOfCode(code: string): Buffer {
  return createHash('sha256').update(code.replace(/[\s-]/g, '').toLowerCase()).digest();
}
