export const WhatIf = (_: { name?: string }) => <p>coming</p>
