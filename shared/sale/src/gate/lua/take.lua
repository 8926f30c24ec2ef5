#!lua flags=allow-oom
-- Puts lost holds of live orders back, whatever stock and limit say: the rows have a right to their units, and the
-- stock may go below zero until the excess has ended FAILED. A hold that is there stays as it is, in whatever state; but
-- a RELEASED one of another wish is only in the way: a gate that had lost the first wish let it in under the same request
-- id, and its units are back already.
--
-- KEYS     1 book   2 pending
-- ARGV     three for each hold: order number, u:<user>, seconds fingerprint|quantity|user|seats (as a hold, without its
--          state)
-- Returns  one word for each, blanks between: CHANGED · UNCHANGED · or for all NOT_READY (missing or being loaded:
--          nothing is done, since the load reads the rows)
-- Why atomic: hold, stock and the user's units change together or not at all.
local call, match = redis.call, string.match
local book = KEYS[1]
local gate = call('HGET', book, 'gate')
if not gate or gate == 'NOT_READY' then return 'NOT_READY' end

local answers = {}
for i = 1, #ARGV, 3 do
  local order, user_field, hold = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local read = call('HMGET', book, order, user_field, 'avail')
  local present = read[1]
  if present and (string.byte(present) ~= 82 or string.sub(present, 12) == string.sub(hold, 11)) then
    answers[#answers + 1] = 'UNCHANGED'
  else
    local quantity = match(hold, '|(%d+)', 27)
    local units, mark = match(read[2] or '0', '(%d+)(.*)')
    call('HSET', book, 'avail', read[3] - quantity, user_field, (units + quantity) .. mark, order, 'H' .. hold)
    answers[#answers + 1] = 'CHANGED'
  end
  call('ZREM', KEYS[2], order)
end
return table.concat(answers, ' ')
