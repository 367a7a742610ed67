/* A product that no library takes in this layout, at $where */
static void $name(const $a *restrict a, const $b *restrict b, $c *restrict c)
{
    $body
}
