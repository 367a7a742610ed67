$unroll
for ($type $pack = $from; $pack < $end; $pack += $threads) {
    $body
}
