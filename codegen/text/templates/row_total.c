$type $name = $start;
for (int64_t block = 0; block < $blocks; block++) {
    $add
}
$store
