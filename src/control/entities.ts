import { ApiClient, LegacyToken } from './api-client.ts';
import { migrationRunEntities } from './migration-run.ts';
import { Server, SigningKey, Tenant } from './tenant.ts';
import { MailToken, Role, Session, User } from './user.ts';

/** Every entity of the control database. */
export const controlEntities = [
  Server,
  Tenant,
  SigningKey,
  Role,
  User,
  Session,
  MailToken,
  ApiClient,
  LegacyToken,
  ...migrationRunEntities,
];
