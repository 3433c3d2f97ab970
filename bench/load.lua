-- Sends the requests of a plan file: wrk -s load.lua <url> -- <file> <pause in ms> <order file>
-- Each line of the plan file is one request, with fields separated by tabs: method, path, body, and headers as
-- "name: value". Each line of the order file is an index (from 0) into the requests; the order is repeated.
-- Prints one line of JSON at the end.

local function read(path)
  local requests = {}
  for line in io.lines(path) do
    local fields = {}
    for field in (line .. "\t"):gmatch("([^\t]*)\t") do
      fields[#fields + 1] = field
    end
    local headers = {}
    for index = 4, #fields do
      local name, value = fields[index]:match("^([^:]+): (.*)$")
      if name then
        headers[name] = value
      end
    end
    requests[#requests + 1] = { fields[1], fields[2], headers, fields[3] ~= "" and fields[3] or nil }
  end
  return requests
end

function init(args)
  local requests = read(args[1])
  local pause = tonumber(args[2])
  if #requests == 1 then -- wrk formats it once and does not call Lua during the run
    wrk.method, wrk.path, wrk.headers, wrk.body = unpack(requests[1], 1, 4)
    wrk.headers["Host"] = wrk.headers["Host"] or "127.0.0.1"
  else
    local order = {}
    for index in io.lines(args[3]) do
      order[#order + 1] = tonumber(index) + 1
    end
    local formatted = {}
    for index, request in ipairs(requests) do
      request[3]["Host"] = "127.0.0.1"
      formatted[index] = wrk.format(unpack(request, 1, 4))
    end
    local turn = 0
    function request()
      turn = turn % #order + 1
      return formatted[order[turn]]
    end
  end
  if pause > 0 then
    function delay()
      return pause
    end
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"p50":%.3f,"p99":%.3f,"statusErrors":%d,"socketErrors":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout
  ))
end
