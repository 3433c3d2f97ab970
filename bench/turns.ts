/** Work of which one turn at a time runs. */
interface Work {
  /** Called when a turn begins. */
  begin: () => Promise<void>;
  /** @param passTurn ends the turn, and resolves when the next one has begun */
  run: (passTurn: () => Promise<void>) => Promise<void>;
  /** Called when a turn ends. */
  end: () => Promise<void>;
}

/** Runs several works, which take turns in their order. */
export async function inTurns(works: readonly Work[]): Promise<void> {
  let lastTurn = Promise.resolve();
  /**
   * Waits for the turns before.
   * @returns the function that ends the turn
   */
  const takeTurn = async (): Promise<() => void> => {
    const before = lastTurn;
    const { promise, resolve } = Promise.withResolvers<void>();
    lastTurn = promise;
    await before;
    return resolve;
  };

  await Promise.all(
    works.map(async ({ begin, run, end }) => {
      let release = await takeTurn();
      const passTurn = async (): Promise<void> => {
        await end();
        release();
        release = await takeTurn();
        await begin();
      };

      try {
        await begin();
        await run(passTurn);
        await end();
      } finally {
        release();
      }
    }),
  );
}
