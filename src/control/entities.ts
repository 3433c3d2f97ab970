import { ApiClient, LegacyToken } from './client-entities.ts';
import { Server, SigningKey, Tenant } from './fleet-entities.ts';
import { SchemaFingerprint } from './migration-run.ts';
import { Role, Session, User } from './user-entities.ts';

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
