class DryRunEnded extends Error {}

/**
 * Runs a change in a transaction. For a dry run, undoes the change at its end: so a dry run is
 * refused where the change would be.
 * @param transact runs work in a transaction, and rolls it back when the work throws
 * @returns the result of the change, also when it is undone
 */
export async function changeOrUndo<Transaction, Result>(
  transact: (work: (transaction: Transaction) => Promise<Result>) => Promise<Result>,
  isDryRun: boolean,
  change: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  let result: Result | undefined;
  try {
    return await transact(async transaction => {
      result = await change(transaction);
      if (isDryRun) throw new DryRunEnded();
      return result;
    });
  } catch (error) {
    if (error instanceof DryRunEnded) return result as Result;
    throw error;
  }
}
