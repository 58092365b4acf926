export const Docs = (_: { name?: string }) => <p>coming</p>
