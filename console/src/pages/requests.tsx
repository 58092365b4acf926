export const Requests = (_: { name?: string }) => <p>coming</p>
