/** The kinds of notices that this build sends. */
export const noticeKinds = [
  'keys_ending',
  'person_disabled',
  'clients_ended',
  'password_changed',
  'factor_added',
  'factors_removed',
  'recovery_code_used',
  'wrong_codes',
  'rights_changed',
  'account_disabled',
  'account_enabled',
  'new_network',
  'provider_changed',
  'sign_in_rules_changed',
  'accounts_made',
  'identity_linked',
  'identity_unlinked',
] as const;
type NoticeKind = (typeof noticeKinds)[number];

/** Keys of programs end. */
export interface KeysEnding {
  /** The day on which they end, in UTC: `2026-12-31`. */
  readonly day: string;
  /** Keys that were made later are not named. In ISO 8601. */
  readonly madeBefore: string;
}

/** A person was disabled, who may have made what goes on. */
export interface PersonDisabled {
  readonly userId: number;
}

/** API clients ended, because the person for whom they acted has set a password by a link. */
export interface ClientsEnded {
  readonly userId: number;
  /** Their names. */
  readonly clients: Named<string>;
}

/** A provider, at which people sign in, was added, changed or removed. */
interface ProviderChanged {
  readonly name: string;
  readonly issuer: string;
  readonly change: 'added' | 'changed' | 'disabled' | 'removed';
  /** The user who did it; null: the operator. */
  readonly userId: number | null;
}

/** The rules were changed by which people log in. */
interface SignInRulesChanged {
  readonly passwordLogins: 'allowed' | 'refused';
  /** The user who did it; null: the operator. */
  readonly userId: number | null;
}

/** Accounts were made on a day, because a provider knows their people. */
export interface AccountsMade {
  /** In UTC: `2026-12-31`. */
  readonly day: string;
}

/** An account at a provider. */
export interface NamedIdentity {
  /** The name of the provider. */
  readonly provider: string;
  /** The address that the provider has named; null, or absent: none. */
  readonly email?: string | null;
}

/** An account at a provider that a new password leaves. */
export interface LinkedIdentity extends NamedIdentity {
  /** In ISO 8601. */
  readonly addedAt: string;
  /** The address of the client; absent: not known. */
  readonly addedFrom?: string;
  /** True if it is refused until its person confirms it. */
  readonly isHeld: boolean;
}

/** A key of a program, as administrators recognise it. */
export interface NamedKey {
  readonly program: string;
  readonly prefix: string;
  /** When it ends, in ISO 8601. */
  readonly endsAt: string;
  /** The day on which it was last used; null: it was not. */
  readonly usedOn: string | null;
}

/** Names for a mail, which has room for some. */
export interface Named<Item> {
  readonly items: readonly Item[];
  /** The number of all of them. */
  readonly count: number;
}

/** The facts of a mail on keys that end. */
export interface EndingFacts extends KeysEnding {
  readonly keys: Named<NamedKey>;
}

/** The person of a mail to administrators. */
export interface NamedPerson {
  readonly name: string;
  readonly email: string;
}

/** The facts of a mail on a person who was disabled, and may have made what goes on. */
export interface DisabledFacts extends PersonDisabled, NamedPerson {
  readonly keys: Named<NamedKey>;
  /** The names of programs. */
  readonly programs: Named<string>;
  /** Hosts and ports alone: the rest of a URL may contain a secret. Null: not known. */
  readonly webhooks: Named<string> | null;
  /**
   * The names of providers of sign-ins that the person has added or changed, as the audit log
   * has it. Absent from a notice of a former build.
   */
  readonly providers?: Named<string>;
}

/** The author of a change of a provider, or of the rules of sign-in. */
export interface ChangeMaker {
  /** Null: the operator, or somebody who was removed. */
  readonly person: NamedPerson | null;
}

/** The facts of a mail on accounts that were made. */
export interface MadeAccounts extends AccountsMade {
  readonly accounts: Named<{ readonly email: string; readonly provider: string }>;
}

/** The author of a change of an account. */
export interface ChangedBy {
  /** `operator`: nobody whom the service knows, such as the command line. */
  readonly by: 'person' | 'administrator' | 'operator';
  /** The address of the client of the person; null: somebody else did it. */
  readonly ipAddress: string | null;
}

/** A second factor of a person. */
export interface NamedFactor {
  readonly name: string;
  readonly kind: 'totp' | 'passkey';
}

/** A second factor that a new password leaves. */
export interface AddedFactor extends NamedFactor {
  /** In ISO 8601. */
  readonly addedAt: string;
  /** The address of the client; null, or absent from a notice of a former build: not known. */
  readonly addedFrom?: string | null;
  /** True for a passkey that is held. Absent from a notice of a former build. */
  readonly isHeld?: boolean;
}

interface Rights {
  readonly role: string;
  readonly scope: string;
}

/** A login from a network that is new for its person. */
interface NewLogin {
  /** As `login_networks.network`. */
  readonly network: string;
  /** In ISO 8601. */
  readonly at: string;
}

/** The details of the events, which the changes write. */
interface EventDetails {
  keys_ending: KeysEnding;
  person_disabled: PersonDisabled;
  clients_ended: ClientsEnded;
  provider_changed: ProviderChanged;
  sign_in_rules_changed: SignInRulesChanged;
  accounts_made: AccountsMade;
}

/** The details of the mails to administrators, and to the person whose account changed. */
interface MailDetails {
  keys_ending: EndingFacts;
  person_disabled: DisabledFacts;
  clients_ended: ClientsEnded & NamedPerson;
  provider_changed: ProviderChanged & ChangeMaker;
  sign_in_rules_changed: SignInRulesChanged & ChangeMaker;
  accounts_made: MadeAccounts;
  identity_linked: ChangedBy & NamedIdentity;
  identity_unlinked: ChangedBy & NamedIdentity;
  password_changed: ChangedBy & {
    /** True if the link of a mail has set the password. */
    readonly isByLink: boolean;
    readonly factors: readonly AddedFactor[];
    /** Absent: the person has none. */
    readonly identities?: readonly LinkedIdentity[];
  };
  factor_added: ChangedBy & NamedFactor;
  factors_removed: ChangedBy & { readonly removed: readonly string[]; readonly left: number };
  recovery_code_used: ChangedBy & { readonly left: number };
  wrong_codes: { readonly ipAddress: string };
  rights_changed: ChangedBy & { readonly before: Rights; readonly after: Rights };
  account_disabled: ChangedBy;
  account_enabled: ChangedBy;
  new_network: { readonly logins: Named<NewLogin> };
}

/** An event of which the administrators of a tenant learn. */
export type NoticeEvent = {
  [Kind in keyof EventDetails]: {
    readonly isEvent: true;
    readonly kind: Kind;
    readonly details: EventDetails[Kind];
  };
}[keyof EventDetails];

/** A mail to one person. */
export type NoticeMail = {
  [Kind in NoticeKind]: {
    readonly isEvent: false;
    readonly kind: Kind;
    readonly details: MailDetails[Kind];
  };
}[NoticeKind];
