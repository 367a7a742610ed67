$packs
const auto $name = [&](const $type item) {
    $loads
};
if (($type)($block) * $at_once + team < $rows)
    $name(($type)($block) * $at_once + team);
