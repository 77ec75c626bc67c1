-- One call of one replica: all that it has to say and wants to know, done as one. Nothing comes in between.
--
-- KEYS[1]  the fleet's name, with its hash tag: every key below begins with it, so a cluster keeps all together
-- ARGV[1]  the call, as JSON. Answers JSON.
--
-- id         which ledger this is; made once
-- replicas   sorted set: replica -> when its lease ends (ms)
-- open:R     hash: number -> "HOUR SAMPLES TOKENS NANOS KEY", what replica R has reserved
-- lost:R     the same of reservations that counted as `maybe` when R's lease had run out; R may still settle them
-- guard      nothing of use
-- said:R     the last answer to R, and the number of that call: a reply that was lost is given once more, and a call
--            that comes after a later one (over a connection which R gave up) is none
-- w:WINDOW   hash: sums of a window, s(pent), m(aybe), r(eserved) of samples 1, tokens 2 and nanos 3, as "s1:KEY"
--            by key and "s1:" of all. Every hour, day, month and "ever" has one, so that an operator may change the
--            window of caps
-- notes      hash: name -> plain data
-- costs:L    list: "COST PRICE" of requests of lane L that have ended, and that its pacer wasn't told of yet
-- lane:L     hash: what lane L is served at: price, average, requests, state (of the pacer), start
-- due        set: lanes that have costs
-- hour       the present hour, as it was last
-- skew       ms of the time that is believed ahead of Redis's clock, while that is doubted: it has jumped
-- pacemaker  the replica that paces, for as long as its lease lasts
--
-- Numbers of Lua are doubles: sums are added up by Redis, in 64 bits, and only compared here. Beyond 2^53 (money: 9
-- million units in one window, in billionths) a comparison may be off by a billionth or two.

local base, batch, call = KEYS[1], cjson.decode(ARGV[1]), redis.call
local me, HOURS, DAYS = batch.me, 3600, 86400

local function key_of(tail)
  return base .. ':' .. tail
end

local id = call('GET', key_of('id'))
if not id and batch.id == '' then
  id = batch.new
  call('SET', key_of('id'), id)
end
if not id or (batch.id ~= '' and batch.id ~= id) then
  return cjson.encode({ foreign = id or '' })
end

local number, again = string.match(call('GET', key_of('said:' .. me)) or '', '^(%d+) (.*)$')
local heard = tonumber(number) or 0
if batch.seq > 0 and heard == batch.seq then
  return again
elseif batch.seq > 0 and heard > batch.seq then
  return cjson.encode({ late = heard })
elseif heard < (batch.last or 0) and not (batch.known or batch.leaves) then -- what R was answered is lost here
  return cjson.encode({ behind = heard })
end
if batch.seq > 0 then
  call('SET', key_of('guard'), me) -- where Redis is full it refuses this, before anything is half done
end

-- Time, by the one clock that all replicas share.

local clock = call('TIME')
local said_now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000) + batch.ahead -- ms
local now, skew = said_now, tonumber(call('GET', key_of('skew')) or '0')
if not batch.expects then -- a replica that has just started believes what the others do
  now = said_now + skew
elseif math.abs(said_now - batch.expects) > 60000 then -- it has jumped, and this replica doubts it for an hour
  now = batch.expects
  if math.abs(now - said_now - skew) > 1000 then
    call('SET', key_of('skew'), string.format('%.0f', now - said_now), 'EX', HOURS)
  end
elseif skew ~= 0 then
  call('DEL', key_of('skew'))
end

local function hour_of(ms) -- "2026-11-15T14", UTC; days to a date as Howard Hinnant's civil_from_days has it
  local seconds = math.floor(ms / 1000)
  local days = math.floor(seconds / DAYS) + 719468
  local era = math.floor(days / 146097)
  local day = days - era * 146097
  local year = math.floor((day - math.floor(day / 1460) + math.floor(day / 36524) - math.floor(day / 146096)) / 365)
  local rest = day - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local shifted = math.floor((5 * rest + 2) / 153)
  local month = shifted < 10 and shifted + 3 or shifted - 9
  year = year + era * 400 + (month <= 2 and 1 or 0)
  local date = rest - math.floor((153 * shifted + 2) / 5) + 1
  return string.format('%04d-%02d-%02dT%02d', year, month, date, math.floor(seconds % DAYS / HOURS))
end

local hour, last_hour = hour_of(now), call('GET', key_of('hour'))
if last_hour and hour < last_hour and hour_of(now + HOURS * 1000) >= last_hour then
  hour = last_hour -- a clock that is set back an hour at most repeats none
end
local window = string.sub(hour, 1, batch.window) -- the name of the present one; "": ever

-- Windows that are over expire; the present ones don't, or a clock that jumps ahead would make Redis forget them.
-- What was spent in the windows that a wrong clock named counts in those that it is set back to as well.

local LIFE = { [13] = 3 * DAYS, [10] = 40 * DAYS, [7] = 400 * DAYS, [0] = 0 }
if hour ~= last_hour then
  for length, life in pairs(LIFE) do
    local from, to = string.sub(last_hour or '', 1, length), string.sub(hour, 1, length)
    if from ~= to then
      call('PERSIST', key_of('w:' .. to))
      call('EXPIRE', key_of('w:' .. from), life)
      local spent = last_hour and hour < last_hour and call('HGETALL', key_of('w:' .. from)) or {}
      for i = 1, #spent, 2 do
        if string.find(spent[i], '^[sm]') then
          call('HINCRBY', key_of('w:' .. to), spent[i], spent[i + 1])
        end
      end
    end
  end
  call('SET', key_of('hour'), hour)
end

-- Sums: what changes is gathered, and written at the end.

local sums, fresh, deltas = {}, {}, {} -- of the present window, as known and as changed here; hour -> field -> change

local function sum(field)
  if not sums[field] then
    sums[field] = tonumber(call('HGET', key_of('w:' .. window), field) or '0') + (fresh[field] or 0)
  end
  return sums[field]
end

local function change(at, field, amount)
  local there = deltas[at]
  there[field] = (there[field] or 0) + amount
  if string.sub(at, 1, batch.window) == window then
    fresh[field] = (fresh[field] or 0) + amount
    if sums[field] then
      sums[field] = sums[field] + amount
    end
  end
end

local function count(at, key, kind, amounts, sign)
  deltas[at] = deltas[at] or {}
  for place = 1, 3 do
    if amounts[place] ~= 0 then
      change(at, kind .. place .. ':' .. key, sign * amounts[place])
      change(at, kind .. place .. ':', sign * amounts[place])
    end
  end
end

local function plain(amount)
  return string.format('%.0f', amount)
end

local function written(at, key, most)
  return at .. ' ' .. plain(most[1]) .. ' ' .. plain(most[2]) .. ' ' .. plain(most[3]) .. ' ' .. key
end

local function read(value)
  local at, samples, tokens, nanos, key = string.match(value, '^(%S+) (%d+) (%d+) (%d+) (.*)$')
  return at, key, { tonumber(samples), tonumber(tokens), tonumber(nanos) }
end

-- What a replica had reserved when its lease ran out may have been spent: it counts in full, until it says itself.

local function write_off(replica, number, value, gone)
  local at, key, most = read(value)
  count(at, key, 'r', most, -1)
  count(at, key, 'm', most, 1)
  call('HSET', key_of('lost:' .. replica), number, value) -- first, as above
  call('HDEL', key_of('open:' .. replica), number)
  call('EXPIRE', key_of('lost:' .. replica), 7 * DAYS)
  gone[1], gone[2], gone[3] = gone[1] + 1, gone[2] + most[1], gone[3] + most[2]
end

local reaped = {}

local function reap(replica)
  local gone, open = { 0, 0, 0 }, call('HGETALL', key_of('open:' .. replica))
  for i = 1, #open, 2 do
    write_off(replica, open[i], open[i + 1], gone)
  end
  call('ZREM', key_of('replicas'), replica)
  table.insert(reaped, { replica, gone[1], gone[2], gone[3] })
end

for _, replica in ipairs(call('ZRANGEBYSCORE', key_of('replicas'), '-inf', '(' .. plain(now))) do
  reap(replica)
end

if batch.new and call('ZCARD', key_of('replicas')) == 0 then
  call('HDEL', key_of('notes'), 'budget') -- an operator's holds until the fleet starts again
end

if batch.leaves then
  reap(me)
else
  local ends = tonumber(call('ZSCORE', key_of('replicas'), me) or '0')
  if ends - now < batch.lease * 0.7 or ends - now > batch.lease then -- not each time: it is a write
    call('ZADD', key_of('replicas'), plain(now + batch.lease), me)
    call('EXPIRE', key_of('said:' .. me), DAYS)
  end
end

local mine, theirs = key_of('open:' .. me), key_of('lost:' .. me)

-- What Redis has lost of its last moment: what is open here and not there was settled, what is there and not here is
-- set aside again. Numbers of what is about to be settled have no value.

if batch.known then
  local open, there = call('HGETALL', mine), {}
  for i = 1, #open, 2 do
    there[open[i]] = true
    if not batch.known[open[i]] then
      write_off(me, open[i], open[i + 1], { 0, 0, 0 })
    end
  end
  for each, value in pairs(batch.known) do
    if value ~= '' and not there[each] and call('HEXISTS', theirs, each) == 0 then
      local at, key, most = read(value)
      call('HSET', mine, each, value)
      count(at, key, 'r', most, 1)
    end
  end
end

-- Reservations.

local function refused(key, limit, asked) -- nil: there is room; else what was taken, of the key and of all
  local taken, over = {}, false
  for i, each in ipairs({ { key, limit }, { '', batch.limit } }) do
    local all = asked
    for j, kind in ipairs({ 's', 'm', 'r' }) do
      local amount = each[2] >= 0 and sum(kind .. batch.place .. ':' .. each[1]) or 0
      taken[3 * (i - 1) + j] = plain(amount)
      all = all + amount
    end
    over = over or (each[2] >= 0 and all > each[2])
  end
  return over and taken
end

local function reserve(number, key, limit, most)
  local taken = refused(key, limit, most[batch.place])
  if taken then
    return taken
  end
  call('HSET', mine, number, written(hour, key, most))
  count(hour, key, 'r', most, 1)
  return 1
end

local function grow(number, _, _, more) -- it was used already, so no cap is asked
  local value = call('HGET', mine, number)
  if value then
    local at, key, most = read(value)
    for place = 1, 3 do
      most[place] = most[place] + more[place]
    end
    call('HSET', mine, number, written(at, key, most))
    count(at, key, 'r', more, 1)
  end
  return 1
end

local function settle(number, key, at, spent, maybe)
  local value, kind = call('HGET', mine, number), 'r'
  if value then
    call('HDEL', mine, number)
  else
    value, kind = call('HGET', theirs, number), 'm'
    if value then
      call('HDEL', theirs, number)
    end
  end
  if value then
    local most
    at, key, most = read(value)
    count(at, key, kind, most, -1)
  elseif at == '' then
    at = hour
  end -- Redis has lost the reservation: what it took counts all the same
  count(at, key, 's', spent, 1)
  count(at, key, 'm', maybe, 1)
  return 1
end

local deeds, said, changed = { r = reserve, g = grow, e = settle }, {}, { [''] = true }
for i, deed in ipairs(batch.deeds or {}) do
  said[i] = deeds[deed[1]](deed[2], deed[3], deed[4], deed[5], deed[6])
  changed[deed[3]] = true
end
for _, key in ipairs(batch.watch or {}) do
  changed[key] = true
end

local committed = {} -- before it is written, while `sum` is right: what counts now, of all and of these keys
for key in pairs(changed) do
  local amounts = { key }
  for _, kind in ipairs({ 's', 'm', 'r' }) do
    table.insert(amounts, plain(sum(kind .. batch.place .. ':' .. key)))
  end
  table.insert(committed, amounts)
end

for at, fields in pairs(deltas) do
  for length, life in pairs(LIFE) do
    local sums_key = key_of('w:' .. string.sub(at, 1, length))
    for field, amount in pairs(fields) do
      if amount ~= 0 then
        call('HINCRBY', sums_key, field, plain(amount))
      end
    end
    if life > 0 and string.sub(at, 1, length) ~= string.sub(hour, 1, length) then
      call('EXPIRE', sums_key, life)
    end
  end
end

for name, text in pairs(batch.notes or {}) do
  call('HSET', key_of('notes'), name, text)
end

-- The price: costs go to their lanes, one replica paces, all read what it publishes.

for lane, told in pairs(batch.costs or {}) do
  local list = key_of('costs:' .. lane)
  for i = 1, #told.costs, 1000 do
    call('RPUSH', list, unpack(told.costs, i, math.min(i + 999, #told.costs)))
  end
  call('LTRIM', list, -batch.most, -1)
  call('EXPIRE', list, DAYS)
  call('SADD', key_of('due'), lane)
  call('HSETNX', key_of('lane:' .. lane), 'start', told.start)
  call('EXPIRE', key_of('lane:' .. lane), 30 * DAYS)
end

for _, paced in ipairs(batch.paced or {}) do -- only where nobody else has paced it since
  local lane = key_of('lane:' .. paced.lane)
  if (call('HGET', lane, 'requests') or '0') == paced.since then
    call('HSET', lane, 'price', paced.price, 'average', paced.average, 'requests', paced.requests, 'state', paced.state)
    call('LTRIM', key_of('costs:' .. paced.lane), paced.took, -1)
    if call('EXISTS', key_of('costs:' .. paced.lane)) == 0 then
      call('SREM', key_of('due'), paced.lane)
    end
  end
end

local maker = call('GET', key_of('pacemaker'))
if batch.leaves then
  if maker == me then
    call('DEL', key_of('pacemaker'))
  end
elseif not maker then
  call('SET', key_of('pacemaker'), me, 'PX', plain(batch.beat))
  maker = me
elseif maker == me and call('PTTL', key_of('pacemaker')) < batch.beat * 0.7 then
  call('PEXPIRE', key_of('pacemaker'), plain(batch.beat))
end

-- What is answered. What changes nothing is not given twice: it is asked for again soon.

local answer = { id = id, hour = hour, now = plain(now), clock = plain(said_now), said = said }
if batch.seq > 0 then
  call('SET', key_of('said:' .. me), plain(batch.seq) .. ' ' .. cjson.encode(answer), 'EX', DAYS)
end
if batch.leaves then
  call('EXPIRE', key_of('said:' .. me), 60) -- a call of it may still be on its way
  if call('EXISTS', key_of('w:'), key_of('replicas')) == 0 then -- nothing was ever spent: no trace is left
    call('DEL', key_of('id'), key_of('notes'), key_of('guard'), key_of('hour'), key_of('skew'))
    call('DEL', key_of('said:' .. me))
  end
end

local due, lanes, left = {}, {}, 1000 -- so many costs at once, for pacing them takes the replica's time
if maker == me then
  for _, lane in ipairs(call('SRANDMEMBER', key_of('due'), 32)) do
    local known = call('HMGET', key_of('lane:' .. lane), 'start', 'requests', 'state')
    local costs = left > 0 and call('LRANGE', key_of('costs:' .. lane), 0, left - 1) or {}
    if #costs > 0 then
      table.insert(due, { lane, known[1], known[2], known[3], costs })
      left = left - #costs
    elseif left > 0 then
      call('SREM', key_of('due'), lane) -- they were too old
    end
  end
end
for i, lane in ipairs(batch.lanes or {}) do
  lanes[i] = call('HMGET', key_of('lane:' .. lane), 'price', 'average', 'requests')
end
answer.committed, answer.watched = committed, batch.watch ~= nil
answer.reaped, answer.due, answer.lanes = reaped, due, lanes
answer.budget = call('HGET', key_of('notes'), 'budget') or ''
answer.replicas, answer.pacemaker = call('ZCARD', key_of('replicas')), maker == me
if batch.account then
  answer.account = call('HGETALL', key_of('w:' .. window))
end
if batch.recalls then
  answer.notes = call('HGETALL', key_of('notes'))
end
return cjson.encode(answer)
