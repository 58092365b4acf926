export const Time = (_: { name?: string }) => <p>coming</p>
