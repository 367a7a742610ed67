$parts
$pragma
for (int64_t block = 0; block < $blocks; block++) {
    $starts
    $rows
    $keep
}
$totals
