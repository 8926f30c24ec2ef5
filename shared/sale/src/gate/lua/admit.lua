#!lua
-- Lets one buyer in, or says why not. Judges in the order of the wire contract; a refusal changes nothing.
--
-- KEYS     1 book   2 pending
-- ARGV     1 order number   2 u:<user>   3 fingerprint|quantity|user|seats   4 d:<device>|<address>   5 only for a buyer
--          who may not buy: the answer, unless there is another one before it
-- Returns  the terms (a JSON object, behind DAY <day> where each day has its limit): admitted ·
--          REPLAYED <H, S or R> <terms, likewise> · NOT_READY · REQUEST_ID_REUSED · PAUSED
--          · ENDED <ms> · BLOCKED [<ms to wait>] · ALREADY_BOUGHT · LIMIT_EXCEEDED <remaining> · STOCK_EMPTY ·
--          INSUFFICIENT_STOCK <remaining> · NOT_STARTED <ms> · RATE_LIMITED <ms to wait>
-- Why atomic: between judging and taking nobody else may take the same unit, or the same user's last allowed one.
--
-- The first line has the server turn a stale replica, a failing disk and a full memory away before anything is read: a
-- sale is never called sold out by a server that could not have sold.
local call, match = redis.call, string.match
local book, order, user_field, request = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

-- One read serves nearly all refusals, since most buyers are refused.
local read = call('HMGET', book, 'gate', order, user_field, 'avail')
local gate, hold, user, available = read[1], read[2], read[3], read[4]

if not gate or gate == 'NOT_READY' then return 'NOT_READY' end
if hold then
  -- A hold: state (1 letter), second (10 digits), then what was asked for.
  local asked, dated = string.sub(hold, 12), ''
  if asked ~= request then
    -- Where each day has its limit, a hold names its day behind the user.
    local before, day, behind = match(asked, '^([^@]*)@(%d+)(.*)$')
    if not day or before .. behind ~= request then return 'REQUEST_ID_REUSED' end
    dated = 'DAY ' .. day .. ' '
  end
  return 'REPLAYED ' .. string.sub(hold, 1, 1) .. ' ' .. dated .. call('HGET', book, 'terms')
end
-- An open gate is made of digits: start and end (13 each), limit, interval of a user, interval of a device. A word is
-- the answer itself; but for DAY, which stands before the gate of a sale that has a limit for each day.
local time, dated
if gate >= 'A' then
  local offset, plain = match(gate, '^DAY (%-?%d+) (.*)$')
  if not plain then return gate end
  gate, time = plain, call('TIME')
  local day = string.format('%d', math.floor((time[1] + offset) / 86400))
  dated = 'DAY ' .. day .. ' '
  local before, of_user, behind = match(request, '^(%x+|%d+|)([^|]*)(.*)$')
  request = before .. of_user .. '@' .. day .. behind
  -- The day's field counts, and has the rate mark; the other one has a cool-down, which outlives the day.
  local cool = user and match(user, ' %d+ (%d+)')
  user_field = user_field .. '@' .. day
  user = call('HGET', book, user_field)
  if cool then
    local units, mark = match(user or '0', '^(%d+) ?(%d*)')
    user = units .. ' ' .. (mark == '' and '0' or mark) .. ' ' .. cool
  end
end
if ARGV[5] then return ARGV[5] end

local quantity = match(request, '%d+', 18)
local had = user and match(user, '%d+') or 0
-- One unit for somebody who has none is within every limit: the crowd's case is not counted out.
if user or quantity ~= '1' then
  -- A third number: until when this user is in a cool-down.
  local cool = user and match(user, ' %d+ (%d+)')
  if cool then
    time = call('TIME')
    local rest = math.ceil(cool - time[1] * 1000 - time[2] / 1000)
    if rest > 0 then return 'BLOCKED ' .. string.format('%d', rest) end
  end
  local limit = match(gate, '%d+', 29)
  local remaining = limit - had
  if remaining - quantity < 0 then
    if remaining > 0 then return 'LIMIT_EXCEEDED ' .. remaining end
    return limit == '1' and 'ALREADY_BOUGHT' or 'LIMIT_EXCEEDED 0'
  end
end

if available == '0' then return 'STOCK_EMPTY' end
local left = available - quantity
if left < 0 then
  return available + 0 > 0 and 'INSUFFICIENT_STOCK ' .. available or 'STOCK_EMPTY'
end

-- Only now the clock: it costs a call, and what is sold out needs none.
time = time or call('TIME')
local second = time[1]
local now = second * 1000 + time[2] / 1000
local starts, ends = string.sub(gate, 1, 13), string.sub(gate, 15, 27)
if now < starts + 0 then return 'NOT_STARTED ' .. starts end
if now >= ends + 0 then return 'ENDED ' .. ends end

local units, device_field, terms = user and had + quantity or quantity, nil, nil
if string.sub(gate, -4) ~= ' 0 0' then
  -- How long a mark still holds a buyer back. One that lies ahead was left before the clock stepped back: it counts as
  -- just left, unless the step was longer than the interval, or it would hold the buyer back for all of the step.
  local function wait(mark, interval)
    local rest = math.ceil(mark + interval - now)
    if rest <= 0 or rest > 2 * interval then return nil end
    return math.min(rest, interval)
  end
  local user_interval, device_interval = match(gate, ' (%d+) (%d+)', 30)
  if user_interval ~= '0' then
    local mark = user and match(user, ' (%d+)')
    local rest = mark and wait(mark, user_interval)
    if rest then return 'RATE_LIMITED ' .. rest end
    units = string.format('%d %d', units, now)
  end
  if device_interval ~= '0' then
    device_field = ARGV[4]
    local more = call('HMGET', book, 'terms', device_field)
    terms = more[1]
    local rest = more[2] and wait(more[2], device_interval)
    if rest then return 'RATE_LIMITED ' .. rest end
  end
end

-- First the one write that could stumble (over a key of another kind): then nothing has changed yet.
call('ZADD', KEYS[2], second, order)
hold = 'H' .. second .. request
left = string.format('%d', left)
if device_field then
  call('HSET', book, 'avail', left, user_field, units, order, hold, device_field, string.format('%d', now))
else
  terms = call('HGET', book, 'terms')
  call('HSET', book, 'avail', left, user_field, units, order, hold)
end
return dated and dated .. terms or terms
