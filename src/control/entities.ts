import {
  ApiClient,
  LegacyToken,
  Role,
  Server,
  Session,
  SigningKey,
  Tenant,
  User,
} from './control-entities.ts';
import { SchemaFingerprint } from './migration-run.ts';

/** Every entity of the control database. */
export const controlEntities = [
  Server,
  Tenant,
  SigningKey,
  Role,
  User,
  Session,
  ApiClient,
  LegacyToken,
  SchemaFingerprint,
];
