#!lua flags=allow-oom
-- Gives the units of dead orders back: HELD becomes RELEASED. Anything else stays as it is, so that no order is given
-- back twice.
--
-- KEYS     1 book   2 pending
-- ARGV     order numbers, at least one
-- Returns  one word for each, blanks between: CHANGED · UNCHANGED · or for all NOT_READY (missing or being loaded:
--          nothing is done, since the load reads the rows)
-- Why atomic: a hold's state, the stock and the user's units change together or not at all.
local call, match = redis.call, string.match
local book = KEYS[1]
local read = call('HMGET', book, 'gate', 'avail', unpack(ARGV))
local gate, avail = read[1], read[2]
if not gate or gate == 'NOT_READY' then return 'NOT_READY' end

local answers, seen = {}, {}
for i = 1, #ARGV do
  local order, hold = ARGV[i], read[i + 2]
  answers[i] = 'UNCHANGED'
  -- 72 is H.
  if hold and string.byte(hold) == 72 and not seen[order] then
    seen[order] = true
    local quantity, user = match(hold, '|(%d+)|([^|]*)', 28)
    local user_field = 'u:' .. user
    -- What follows the units is the user's rate mark; it outlives the hold.
    local units, mark = match(call('HGET', book, user_field), '(%d+)(.*)')
    units = (units - quantity) .. mark
    avail = avail + quantity
    hold = 'R' .. string.sub(hold, 2)
    call('HSET', book, 'avail', string.format('%d', avail), user_field, units, order, hold)
    answers[i] = 'CHANGED'
  end
end
call('ZREM', KEYS[2], unpack(ARGV))
return table.concat(answers, ' ')
