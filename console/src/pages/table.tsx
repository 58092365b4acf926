export const TablePage = (_: { name?: string }) => <p>coming</p>
