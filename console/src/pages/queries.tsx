export const Queries = (_: { name?: string }) => <p>coming</p>
