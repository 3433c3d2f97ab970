/**
 * The two kinds of rows that a tenant's database keeps for ever without a retention: the table,
 * and the role that removes from it.
 */
export const historyKinds = {
  activity: { table: 'activities', remove: 'remove_old_activities', noun: 'activities' },
  audit: { table: 'audit_log', remove: 'remove_old_audit_entries', noun: 'audit entries' },
} as const;

export type HistoryKind = keyof typeof historyKinds;

export const kindNames = Object.keys(historyKinds) as HistoryKind[];
