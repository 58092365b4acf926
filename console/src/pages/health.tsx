export const Health = (_: { name?: string }) => <p>coming</p>
