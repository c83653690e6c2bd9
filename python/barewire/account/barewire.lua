-- SPDX-License-Identifier: Apache-2.0 OR MIT
-- Wireshark's dissector of what Barewire adds to LLC, wire versions 3 to 5 (docs/protocol.md).
--
--   frames      Ethernet | LLC | extension …                LLC is Wireshark's own; this runs after it, as a post-dissector,
--                                                           because S and U PDUs have their extension behind LLC's length
--   datagrams   UDP | length or EtherType 2 | LLC | …       recognised by a valid check, or by their connection
--   raw frames  EtherType 0x88b5 | session | sequence | fragment     of the probe
--
-- It is one file because Wireshark loads each file of its folder by itself.
--
-- A check and a seal differ in length, and no field says which it is. A SABME or UA shows it by its version octet, any
-- other PDU by a valid check; it then holds for both stations. Encrypted messages have no readable header.

-- It may be installed as a plugin and named by -X lua_script: as well.
if _G.barewire_is_loaded then return end
_G.barewire_is_loaded = true

local barewire = Proto("barewire", "Barewire")
barewire.prefs.verify = Pref.bool("Verify checks", false, "Compute the check of each frame that has one")

barewire.prefs.brief = Pref.bool("Sizes only", false, "Add only the fields that `barewire account` adds up: twice as fast")

local CHECK, SEAL, MARK = 4, 24, 8
local ETHERTYPE_LLC, ETHERTYPE_RAW, LENGTH_MAX = 0x8870, 0x88b5, 1500
local VERSIONS = { [3] = true, [4] = true, [5] = true }
-- Bytes behind the mark; S PDUs have a poll number since version 5.
local OF_I, OF_S, OF_SET_UP = 2, 19, 17
local OF_S_BEFORE_5 = 17

-- Fields -------------------------------------------------------------------------------------------------------------

local field = {}
local function define(name, kind, label, ...)
    field[name] = ProtoField[kind]("barewire." .. name, label, ...)
end

define("pdu", "string", "PDU")
define("check", "uint32", "Check (CRC32C)", base.HEX)
define("check.computed", "uint32", "Computed check", base.HEX)
define("seal", "bytes", "Seal")
define("seal.counter", "uint64", "Counter", base.DEC)
define("seal.tag", "bytes", "Tag")
define("mark", "uint64", "Mark", base.HEX)
define("mark.connection", "bytes", "Of the connection")
define("mark.numbers", "uint24", "Of the connection and the numbers", base.HEX)
define("late.ns", "uint16", "N(S) / 16384, modulo 4096", base.DEC)
define("late.nr", "uint16", "N(R) / 16384, modulo 4096", base.DEC)
define("ns", "uint16", "N(S) with its round", base.DEC)
define("nr", "uint16", "N(R) with its round", base.DEC)
define("retransmission", "bool", "Retransmission")
define("partial", "bool", "Check covers the head only")
define("rest_missing", "bool", "All that is not kept is missing")
define("kept", "bytes", "Kept beyond N(R)")
define("poll", "uint16", "Number of the poll, or of the one answered", base.HEX)
define("version", "uint8", "Wire version", base.DEC)
define("nonce", "uint64", "Nonce", base.HEX)
define("cookie", "uint64", "Cookie", base.HEX)
define("fragment.first", "bool", "First fragment")
define("fragment.last", "bool", "Last fragment")
define("fragment.total", "uint32", "Length of the message with its header", base.DEC)
define("encrypted", "bool", "Encrypted")
define("message", "string", "Message")
define("message.tag", "uint64", "Tag", base.HEX)
define("message.data", "uint64", "Data", base.HEX)
define("message.number", "uint64", "Number", base.DEC)
define("message.length", "uint64", "Length", base.DEC)
define("message.address", "uint64", "Address", base.HEX)
define("message.receive", "uint64", "Receive", base.DEC)
define("message.wanted", "uint64", "Bytes wanted", base.DEC)
define("message.offset", "uint64", "Offset", base.DEC)
define("message.key", "uint64", "Key", base.HEX)
define("message.operation", "uint8", "Operation", base.DEC)
define("message.type", "uint8", "Type", base.DEC)
define("message.refusal", "uint8", "Refusal", base.DEC, {
    [0] = "none", "key", "range", "access", "operation", "deregistered",
})
define("path.version", "uint8", "Version", base.DEC)
define("path.from", "ether", "From station")
define("path.from_sap", "uint8", "From SAP", base.HEX)
define("path.to", "ether", "To station")
define("path.to_sap", "uint8", "To SAP", base.HEX)
define("path.nonce", "uint64", "Question", base.HEX)
define("path.echo", "uint64", "Question answered", base.HEX)
define("path.interface", "ether", "Interface")
define("path.speed", "uint32", "Mbit/s", base.DEC)
define("path.tag", "bytes", "Tag")
define("piece.frame", "uint64", "Frame", base.HEX)
define("piece.number", "uint8", "Piece", base.DEC)
define("piece.count", "uint8", "Pieces", base.DEC)
define("piece.total", "uint16", "Bytes of the frame", base.DEC)
define("name.version", "uint8", "Version", base.DEC)
define("name.kind", "uint8", "Kind", base.DEC, { "query", "answer" })
define("name.nonce", "uint32", "Nonce", base.HEX)
define("name.port", "uint16", "Port", base.DEC)
define("name.address", "ipv6", "Address")
define("name.name", "string", "Name")
define("raw.session", "uint32", "Session", base.HEX)
define("raw.sequence", "uint32", "Sequence", base.DEC)
define("raw.fragment", "uint32", "Fragment", base.DEC)
-- What `barewire account` adds up.
define("bytes.llc", "uint32", "Bytes of LLC", base.DEC)
define("bytes.extension", "uint32", "Bytes of extension and fragment header", base.DEC)
define("bytes.seal", "uint32", "Bytes of seal", base.DEC)
define("bytes.message", "uint32", "Bytes of message header", base.DEC)
define("bytes.payload", "uint32", "Bytes of payload", base.DEC)

local bytes_of = {}
for index, layer in ipairs({ "llc", "extension", "seal", "message", "payload" }) do bytes_of[index] = field["bytes." .. layer] end

local all_fields = {}
for _, one in pairs(field) do all_fields[#all_fields + 1] = one end
barewire.fields = all_fields

local bad_check = ProtoExpert.new("barewire.check.bad", "The check does not match", expert.group.CHECKSUM, expert.severity.ERROR)
local truncated = ProtoExpert.new("barewire.truncated", "The frame ends within a header", expert.group.MALFORMED, expert.severity.ERROR)
local unknown_message = ProtoExpert.new("barewire.message.unknown", "Unknown kind of message", expert.group.UNDECODED, expert.severity.NOTE)
barewire.experts = { bad_check, truncated, unknown_message }

-- Numbers ------------------------------------------------------------------------------------------------------------

-- Lua 5.2 has bit32, later versions operators, which earlier ones cannot parse.
local xor = bit32 and bit32.bxor or load("return function(a, b) return a ~ b end")()

local function bits(value, from, count) return math.floor(value / 2 ^ from) % 2 ^ count end

local crc_table = {}
for byte = 0, 255 do
    local state = byte
    for _ = 1, 8 do
        state = state % 2 == 1 and xor(math.floor(state / 2), 0x82f63b78) or math.floor(state / 2)
    end
    crc_table[byte] = state
end

local function extend(state, bytes)
    for at = 1, #bytes do
        state = xor(math.floor(state / 256), crc_table[xor(state % 256, bytes:byte(at))])
    end
    return state
end

-- Reading ------------------------------------------------------------------------------------------------------------

-- Reads one field after the other. `cut` is set where the capture ends, or the frame.
local Reader = {}
Reader.__index = Reader

-- A tree that takes everything and shows nothing.
local nothing
nothing = setmetatable({}, { __index = function() return function() return nothing end end })

local function reader(tvb, tree, at) return setmetatable({ tvb = tvb, tree = tree, at = at, cut = false }, Reader) end

function Reader:has(bytes)
    if self.cut or self.at + bytes > self.tvb:len() then
        if not self.cut and self.at + bytes > self.tvb:reported_len() then
            self.tree:add_proto_expert_info(truncated)
        end
        self.cut = true
    end
    return not self.cut
end

function Reader:take(name, bytes)
    if not self:has(bytes) then return nil end
    local range = self.tvb(self.at, bytes)
    self.at = self.at + bytes
    return self.tree:add(field[name], range), range
end

function Reader:flag(name, octet, bit)
    return self.tree:add(field[name], self.tvb(self.at - 1, 1), bits(octet, bit, 1) == 1)
end

-- Names of stations --------------------------------------------------------------------------------------------------

-- A check covers the addresses of the two stations, by which they know each other: MAC addresses of one interface each.
-- On the wire there may be another interface's, or UDP's. Questions about paths have both.
local names = {}

local function name_of(address, sap) return names[address .. string.char(sap)] or address end

local function learn_names(pdu, from)
    if from + 19 > pdu.tvb:len() then return end
    names[pdu.wire:sub(7, 12) .. string.char(pdu.ssap)] = pdu.tvb:raw(from + 5, 6)
    names[pdu.wire:sub(1, 6) .. string.char(pdu.dsap)] = pdu.tvb:raw(from + 12, 6)
end

-- PDUs ---------------------------------------------------------------------------------------------------------------

local UNNUMBERED = {
    [0x03] = "UI", [0x0f] = "DM", [0x43] = "DISC", [0x63] = "UA", [0x67] = "AC0", [0x6f] = "SABME", [0x87] = "FRMR",
    [0xaf] = "XID", [0xe3] = "TEST", [0xe7] = "AC1",
}
local SUPERVISORY = { [0x01] = "RR", [0x05] = "RNR", [0x09] = "REJ" }

-- The PDU at `at`: LLC of `length` bytes, and what lies behind it; `wire`: destination and source there. nil if it is none.
-- The extension is at `extension`, before the information field or behind the PDU, with `more` bytes behind its mark.
local function pdu_at(tvb, at, length, wire)
    if length < 3 or at + 3 > tvb:len() then return nil end
    local ssap, control = tvb(at + 1, 1):uint(), tvb(at + 2, 1):uint()
    local pdu = { tvb = tvb, at = at, length = length, wire = wire, dsap = tvb(at, 1):uint() }
    pdu.is_response, pdu.ssap = ssap % 2 == 1, ssap - ssap % 2
    pdu.addresses = name_of(wire:sub(1, 6), pdu.dsap) .. name_of(wire:sub(7, 12), pdu.ssap)
    if control % 2 == 0 then
        pdu.name, pdu.header, pdu.more, pdu.has_information = "I", 4, OF_I, true
    elseif control % 4 == 1 then
        pdu.name, pdu.header, pdu.more = SUPERVISORY[control], 4, OF_S
    else
        pdu.name, pdu.header, pdu.more = UNNUMBERED[control - 16 * bits(control, 4, 1)], 3, 0
        local is_command = pdu.name == "AC0" or pdu.name == "AC1"
        pdu.has_information = pdu.name == "UI" or (is_command and not pdu.is_response)
        if pdu.name == "SABME" or pdu.name == "UA" then pdu.more = OF_SET_UP end
    end
    if pdu.name == nil or length < pdu.header or at + pdu.header > tvb:len() then return nil end
    pdu.control = control
    pdu.extension = at + (pdu.has_information and pdu.header or length)
    -- Behind an information field there is only padding.
    pdu.ends = pdu.has_information and at + length or tvb:reported_len()
    return pdu
end

local function room(pdu) return pdu.ends - pdu.extension end

-- How many bytes of an I PDU's information its check covers; all of them unless it says otherwise.
local function covered(pdu)
    local from = pdu.extension + CHECK
    if pdu.name == "I" and bits(pdu.tvb(from + MARK + 1, 1):uint(), 7, 1) == 1 then
        local is_first = pdu.tvb:len() > from + MARK + OF_I and pdu.tvb(from + MARK + OF_I, 1):uint() % 2 == 1
        return math.min(pdu.ends - from, MARK + OF_I + (is_first and 64 or 1))
    end
    return pdu.has_information and pdu.ends - from or MARK + pdu.more
end

-- The check that a PDU should have; nil if the capture lacks some of what it covers.
local function computed_check(pdu)
    local tvb, from = pdu.tvb, pdu.extension + CHECK
    if room(pdu) < CHECK + MARK + pdu.more or from + MARK + pdu.more > tvb:len() then return nil end
    local bytes = covered(pdu)
    if from + bytes > tvb:len() then return nil end
    -- The start of the PDU is part of the initial value.
    local head = pdu.has_information and pdu.header or 3
    local state = 0
    for index = 3, 0, -1 do
        local octet = index < head and tvb(pdu.at + index, 1):uint() or 0
        state = state * 256 + 255 - octet
    end
    state = extend(state, pdu.addresses)
    if pdu.at + head < pdu.extension then state = extend(state, tvb:raw(pdu.at + head, pdu.extension - pdu.at - head)) end
    return 0xffffffff - extend(state, tvb:raw(from, bytes))
end

local function has_valid_check(pdu) return computed_check(pdu) == pdu.tvb(pdu.extension, CHECK):uint() end

-- Stations -----------------------------------------------------------------------------------------------------------

-- Of each two stations: which guard their PDUs have, whether messages are encrypted, and since which frame. Kept for as long
-- as the program runs: a later set-up of the same two stations is another entry.
local known = {}
-- The low 24 bits of the first mark of each direction of a connection whose set-up is in the capture.
local first_numbers = {}

local function stations(pdu)
    local destination = pdu.addresses:sub(1, 6) .. string.char(pdu.dsap)
    local source = pdu.addresses:sub(7, 12) .. string.char(pdu.ssap)
    return destination < source and destination .. source or source .. destination
end

local function entry_of(pdu, number)
    local entries = known[stations(pdu)]
    if entries == nil then return nil end
    for index = #entries, 1, -1 do
        if entries[index].since <= number then return entries[index] end
    end
    return entries[1]
end

local function learn(pdu, number, guard, version, is_set_up)
    local key = stations(pdu)
    local entry = entry_of(pdu, number)
    if entry and entry.guard == guard and (entry.since == number or not is_set_up) then return entry end
    local entries = known[key] or {}
    known[key] = entries
    entry = { guard = guard, version = version, since = number, is_set_up = is_set_up, is_encrypted = false }
    entries[#entries + 1] = entry
    return entry
end

-- The entry of a PDU's stations; nil for a PDU without an extension of ours.
local function guarded(pdu, number, is_datagram, has_ethertype)
    if pdu.name == "SABME" or pdu.name == "UA" then
        local function version(guard)
            local at = pdu.extension + guard + MARK
            if room(pdu) < guard + MARK + OF_SET_UP or at >= pdu.tvb:len() then return nil end
            local octet = pdu.tvb(at, 1):uint()
            return VERSIONS[octet] and octet
        end
        local checked, sealed = version(CHECK), version(SEAL)
        if checked and has_valid_check(pdu) then return learn(pdu, number, CHECK, checked, true) end
        return sealed and learn(pdu, number, SEAL, sealed, true) or nil
    end
    local function is_checked()
        return room(pdu) >= CHECK + MARK + pdu.more and pdu.extension + CHECK <= pdu.tvb:len() and has_valid_check(pdu)
    end
    local entry = entry_of(pdu, number)
    if entry then
        if SUPERVISORY[pdu.control] and entry.version < 5 then pdu.more = OF_S_BEFORE_5 end
        return room(pdu) >= entry.guard + MARK + pdu.more and entry or nil
    end
    if is_checked() then return learn(pdu, number, CHECK, 5, false) end
    if SUPERVISORY[pdu.control] then
        pdu.more = OF_S_BEFORE_5
        if is_checked() then return learn(pdu, number, CHECK, 4, false) end
        pdu.more = OF_S
    end
    -- Nothing else uses this EtherType between hosts; in UDP anything may begin with its two octets.
    if has_ethertype and not is_datagram and room(pdu) >= SEAL + MARK + pdu.more then
        return learn(pdu, number, SEAL, 5, false)
    end
    return nil
end

-- Messages -----------------------------------------------------------------------------------------------------------

local TAGGED, WITH_DATA, CONFIRMED, WITH_ADDRESS = 4, 5, 6, 7
-- Each kind: its name, then its numbers, each with the bit of the kind octet that says whether it is there.
local MESSAGES = {
    { "eager", { "tag", TAGGED }, { "data", WITH_DATA }, { "number", CONFIRMED } },
    { "request", { "tag", TAGGED }, { "data", WITH_DATA }, { "number" }, { "length" }, { "address", WITH_ADDRESS } },
    { "answer", { "number" }, { "receive" }, { "wanted" } },
    { "data", { "receive" }, { "offset" } },
    { "delivered", { "number" } },
    { "announce" },
    { "resume" },
    { "write", { "data", WITH_DATA }, { "number" }, { "key" }, { "offset" }, { "length" } },
    { "rest", { "number" }, { "offset" } },
    { "read", { "number" }, { "key" }, { "offset" }, { "length" } },
    { "returned", { "number" }, { "offset" } },
    { "atomic", { "number" }, { "key" }, { "offset" }, { "operation" }, { "type" }, { "length" } },
    { "done", { "number" }, { "refusal" } },
}
local ALLOWED = { 0x70, 0xf0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0x40, 0 }
local OCTETS = { operation = true, type = true, refusal = true }

-- Adds a message's header; returns its length in bytes, 0 if there is none that is known.
local function add_message(read, summary)
    if not read:has(1) then return 0 end
    local start, octet = read.at, read.tvb(read.at, 1):uint()
    local kind = MESSAGES[octet % 16]
    local flags = octet - octet % 16
    if kind == nil or xor(flags, ALLOWED[octet % 16]) + flags ~= ALLOWED[octet % 16] then
        read.tree:add_proto_expert_info(unknown_message)
        return 0
    end
    local item = read.tree:add(field.message, read.tvb(start, 1), kind[1])
    summary[#summary + 1] = kind[1]
    local inner = reader(read.tvb, item, start + 1)
    local length = 1
    for index = 2, #kind do
        local name, bit = kind[index][1], kind[index][2]
        if bit == nil or bits(octet, bit, 1) == 1 then
            local bytes = OCTETS[name] and 1 or 8
            length = length + bytes
            inner:take("message." .. name, bytes)
        end
    end
    item:set_len(math.min(length, read.tvb:len() - start))
    return length
end

-- The information of an I PDU: a fragment of a message. Returns the bytes of its header and of the message's.
local function add_fragment(pdu, read, entry, summary, tree)
    local information = pdu.ends - read.at
    if information < 1 or not read:has(1) then return 0, 0 end
    local flags = read.tvb(read.at, 1):uint()
    local is_first = flags % 2 == 1
    -- One ciphertext in 64 looks like flags, but hardly all of a connection's.
    if entry.guard == SEAL and flags > 3 then entry.is_encrypted = true end
    if entry.is_encrypted then
        tree:add(field.encrypted, read.tvb(read.at, math.min(information, read.tvb:len() - read.at)), true)
        summary[#summary + 1] = "encrypted"
        return 0, 0
    end
    read.at = read.at + 1
    read:flag("fragment.first", flags, 0)
    read:flag("fragment.last", flags, 1)
    if not is_first then
        summary[#summary + 1] = "fragment"
        return 1, 0
    end
    read:take("fragment.total", 4)
    if information <= 5 then return 5, 0 end
    return 5, add_message(read, summary)
end

-- The extension ------------------------------------------------------------------------------------------------------

local function add_guard(pdu, read, entry)
    if entry.guard == SEAL then
        local item, range = read:take("seal", SEAL)
        if item then
            item:add(field["seal.counter"], range(0, 8))
            item:add(field["seal.tag"], range(8, 16))
        end
        return
    end
    local item = read:take("check", CHECK)
    if item and barewire.prefs.verify then
        local wanted = computed_check(pdu)
        if wanted then
            item:add(field["check.computed"], pdu.tvb(pdu.extension, CHECK), wanted):set_generated()
            if not has_valid_check(pdu) then item:add_proto_expert_info(bad_check) end
        end
    end
end

-- A mark; of I and S PDUs also what its low 24 bits say of the numbers (decision 0037).
local function add_mark(pdu, read, entry)
    local item, range = read:take("mark", MARK)
    if item == nil or not (pdu.name == "I" or SUPERVISORY[pdu.control]) then return end
    item:add(field["mark.connection"], range(0, 5))
    item:add(field["mark.numbers"], range(5, 3))
    if not entry.is_set_up then return end
    local connection, numbers = range(0, 5):raw(), range(5, 3):uint()
    first_numbers[connection] = first_numbers[connection] or numbers
    local beyond = xor(numbers, first_numbers[connection])
    item:add(field["late.ns"], range(5, 3), bits(beyond, 12, 12)):set_generated()
    item:add(field["late.nr"], range(5, 3), bits(beyond, 0, 12)):set_generated()
end

local function add_numbers(pdu, read, summary, tree)
    if not read:has(pdu.name == "I" and 2 or 1) then return end
    if pdu.name == "I" then
        local octet = read.tvb(read.at, 1):uint()
        local ns = octet % 128 * 128 + bits(pdu.control, 1, 7)
        read.tree:add(field.ns, read.tvb(read.at, 1), ns)
        tree:add(field.retransmission, read.tvb(read.at, 1), octet >= 128)
        read.at = read.at + 1
        summary[#summary + 1] = string.format("N(S)=%d", ns)
    end
    local octet = read.tvb(read.at, 1):uint()
    local nr = octet % 128 * 128 + bits(read.tvb(pdu.at + 3, 1):uint(), 1, 7)
    read.tree:add(field.nr, read.tvb(read.at, 1), nr)
    read.at = read.at + 1
    read:flag(pdu.name == "I" and "partial" or "rest_missing", octet, 7)
    summary[#summary + 1] = string.format("N(R)=%d", nr)
    if pdu.name ~= "I" then read:take("kept", 16) end
    if pdu.more == OF_S then read:take("poll", 2) end
end

local function add_set_up(read, summary)
    local _, version = read:take("version", 1)
    read:take("nonce", 8)
    read:take("cookie", 8)
    if version then summary[#summary + 1] = string.format("version %d", version:uint()) end
end

-- Returns the bytes of each layer, in the order of `bytes_of`.
local function add_extension(pdu, tree, entry, summary)
    local brief = barewire.prefs.brief
    local read = reader(pdu.tvb, brief and nothing or tree, pdu.extension)
    tree:add(field.pdu, pdu.tvb(pdu.at, pdu.header), pdu.name)
    if brief then
        read.at = read.at + entry.guard + MARK
    else
        add_guard(pdu, read, entry)
        add_mark(pdu, read, entry)
    end
    local fragment, message = 0, 0
    if pdu.name == "I" or SUPERVISORY[pdu.control] then
        add_numbers(pdu, read, summary, tree)
    elseif pdu.more == OF_SET_UP then
        add_set_up(read, summary)
    end
    if pdu.name == "I" then fragment, message = add_fragment(pdu, read, entry, summary, tree) end
    local seal = entry.guard == SEAL and SEAL or 0
    local extension = entry.guard - seal + MARK + pdu.more + fragment
    local payload = pdu.has_information and room(pdu) - seal - extension - message or 0
    return { pdu.extension - pdu.at, extension, seal, message, payload }
end

-- UI PDUs without an extension: the carriers' questions and answers, pieces of frames, and names ------------------------

local INTERFACES = 4

local function add_path(read, summary)
    read.at = read.at + 4
    read:take("path.version", 1)
    read:take("path.from", 6)
    read:take("path.from_sap", 1)
    read:take("path.to", 6)
    read:take("path.to_sap", 1)
    read:take("path.nonce", 8)
    local _, echo = read:take("path.echo", 8)
    for _ = 1, INTERFACES do
        local _, interface = read:take("path.interface", 6)
        if interface then read:take("path.speed", 4) end
    end
    read:take("path.tag", 8)
    summary[#summary + 1] = echo and echo:raw() ~= ("\0"):rep(8) and "path: answer" or "path: question"
end

local function add_piece(read, summary)
    read.at = read.at + 4
    read:take("piece.frame", 8)
    local _, number = read:take("piece.number", 1)
    local _, count = read:take("piece.count", 1)
    read:take("piece.total", 2)
    if count then summary[#summary + 1] = string.format("piece %d of %d", number:uint() + 1, count:uint()) end
end

local function add_name(read, summary)
    read.at = read.at + 3
    read:take("name.version", 1)
    local _, kind = read:take("name.kind", 1)
    read:take("name.nonce", 4)
    read:take("name.port", 2)
    read:take("name.address", 16)
    if read:has(1) then
        local length = read.tvb(read.at, 1):uint()
        read.at = read.at + 1
        if length > 0 then read:take("name.name", length) end
    end
    summary[#summary + 1] = kind and kind:uint() == 2 and "name: answer" or "name: query"
end

-- Which of these a UI PDU is; nil for none.
local function plain_ui(pdu)
    local from = pdu.at + pdu.header
    if pdu.name ~= "UI" or from + 4 > math.min(pdu.ends, pdu.tvb:len()) then return nil end
    local magic = pdu.tvb:raw(from, 4)
    if magic == "BWPA" then return add_path end
    if magic == "BWPF" then return add_piece end
    if magic:sub(1, 3) == "BWN" then return add_name end
    return nil
end

-- A PDU, in whatever carries it --------------------------------------------------------------------------------------

local last_frame = -1

local function dissect(pdu, pinfo, tree, is_datagram, has_ethertype)
    local add = plain_ui(pdu)
    local entry = add == nil and guarded(pdu, pinfo.number, is_datagram, has_ethertype) or nil
    if add == nil and entry == nil then return nil end
    if add == add_path then learn_names(pdu, pdu.at + pdu.header) end
    last_frame = pinfo.number
    local from = add and pdu.at + pdu.header or pdu.extension
    local captured = math.max(math.min(pdu.ends, pdu.tvb:len()) - from, 0)
    local subtree = tree:add(barewire, pdu.tvb(math.min(from, pdu.tvb:len()), captured))
    local summary, bytes = { pdu.name }, nil
    if add then
        subtree:add(field.pdu, pdu.tvb(pdu.at, pdu.header), pdu.name)
        add(reader(pdu.tvb, subtree, from), summary)
        bytes = { pdu.header, pdu.ends - from, 0, 0, 0 }
    else
        bytes = add_extension(pdu, subtree, entry, summary)
    end
    for index, count in ipairs(bytes) do subtree:add(bytes_of[index], count):set_generated() end
    if barewire.prefs.brief then return pdu.name end
    local text = table.concat(summary, " ")
    subtree:append_text(": " .. text)
    return text
end

local function set_columns(pinfo, text)
    pinfo.cols.protocol:set("Barewire")
    pinfo.cols.info:set(text)
end

local llc_dsap, llc_ssap, eth_dst = Field.new("llc.dsap"), Field.new("llc.ssap"), Field.new("eth.dst")
local eth_src = Field.new("eth.src")

function barewire.dissector(tvb, pinfo, tree)
    if pinfo.number == last_frame then
        last_frame = -1
        return
    end
    local dsap, destination = llc_dsap(), eth_dst()
    if dsap == nil or destination == nil then return end
    local at = dsap.offset
    if at < 14 or destination.offset + 12 > tvb:len() then return end
    local length = tvb(at - 2, 2):uint()
    local has_ethertype = length == ETHERTYPE_LLC
    if not has_ethertype and length > LENGTH_MAX then return end
    if has_ethertype then length = tvb:reported_len() - at end
    local pdu = pdu_at(tvb, at, math.min(length, tvb:reported_len() - at), tvb:raw(destination.offset, 12))
    local text = pdu and dissect(pdu, pinfo, tree, false, has_ethertype)
    if text then set_columns(pinfo, text) end
    last_frame = -1
end

register_postdissector(barewire)

-- Dissectors of Wireshark's that would take an extension for something else ---------------------------------------------

-- Whether the frame that is being dissected is from and to stations that are known as ours.
local function is_between_known_stations()
    local dsap, ssap, destination, source = llc_dsap(), llc_ssap(), eth_dst(), eth_src()
    if dsap == nil or source == nil then return false end
    local to_sap, from_sap = dsap.value, ssap.value - ssap.value % 2
    local to, from = name_of(destination.range:raw(), to_sap), name_of(source.range:raw(), from_sap)
    return known[stations({ addresses = to .. from, dsap = to_sap, ssap = from_sap })] ~= nil
end

-- Some service access points that programs use are other protocols', which find our information malformed. They get what is
-- not from known stations.
local elsewhere = Proto("barewire_elsewhere", "Barewire or another protocol of this service access point")
local originals = {}

function elsewhere.dissector(tvb, pinfo, tree)
    if is_between_known_stations() then return tvb:len() end
    return originals[llc_dsap().value]:call(tvb, pinfo, tree)
end

local saps = DissectorTable.get("llc.dsap")
for sap = 2, 254, 2 do
    local original = saps:get_dissector(sap)
    if original then
        originals[sap] = original
        saps:add(sap, elsewhere)
    end
end

-- Ethernet warns of bytes behind LLC's length unless somebody knows them. A first SABME shows itself by its version.
local function is_trailer(tvb)
    local function has_version(guard)
        local at = guard + MARK
        return tvb:len() > at and VERSIONS[tvb(at, 1):uint()] or false
    end
    return is_between_known_stations() or has_version(CHECK) or has_version(SEAL)
end

barewire:register_heuristic("eth.trailer", is_trailer)

-- UDP ----------------------------------------------------------------------------------------------------------------

local ip_ends, ip6_ends = { Field.new("ip.dst"), Field.new("ip.src") }, { Field.new("ipv6.dst"), Field.new("ipv6.src") }
local llc = Dissector.get("llc")

-- FNV-1a of an IPv6 address, folded to 32 bits, as stations name themselves.
local function folded(address)
    local hash, prime = UInt64(0x84222325, 0xcbf29ce4), UInt64(0x000001b3, 0x00000100)
    for at = 1, #address do hash = hash:bxor(UInt64(address:byte(at), 0)) * prime end
    return xor(hash:higher(), hash:lower())
end

-- The address of a station behind UDP: port, then IPv4 address or hash of the IPv6 address.
local function station(port, side)
    local last
    local v4, v6 = { ip_ends[side]() }, { ip6_ends[side]() }
    if #v4 > 0 then
        last = v4[#v4].range:raw()
    elseif #v6 > 0 then
        local value = folded(v6[#v6].range:raw())
        last = string.char(bits(value, 24, 8), bits(value, 16, 8), bits(value, 8, 8), bits(value, 0, 8))
    else
        return nil
    end
    return string.char(bits(port, 8, 8), port % 256) .. last
end

local function dissect_datagram(tvb, pinfo, tree)
    if tvb:len() < 5 then return false end
    local length, rest = tvb(0, 2):uint(), tvb:reported_len() - 2
    local has_ethertype = length == ETHERTYPE_LLC
    if not has_ethertype and (length < 3 or length > math.min(LENGTH_MAX, rest)) then return false end
    local destination, source = station(pinfo.dst_port, 1), station(pinfo.src_port, 2)
    if destination == nil or source == nil then return false end
    local pdu = pdu_at(tvb, 2, has_ethertype and rest or length, destination .. source)
    local text = pdu and dissect(pdu, pinfo, tree, true, has_ethertype)
    if not text then return false end
    -- The header alone: whose service access point it is elsewhere does not matter.
    llc:call(tvb(2, pdu.header):tvb(), pinfo, tree)
    set_columns(pinfo, text)
    return true
end

barewire:register_heuristic("udp", dissect_datagram)

-- The probe's raw frames ---------------------------------------------------------------------------------------------

local raw = Proto("barewire_raw", "Barewire raw frame")

function raw.dissector(tvb, pinfo, tree)
    local subtree = tree:add(raw, tvb(0, math.min(12, tvb:len())))
    local read = reader(tvb, subtree, 0)
    read:take("raw.session", 4)
    read:take("raw.sequence", 4)
    read:take("raw.fragment", 4)
    local extension = math.min(12, tvb:reported_len())
    subtree:add(field["bytes.extension"], extension):set_generated()
    subtree:add(field["bytes.payload"], tvb:reported_len() - extension):set_generated()
    pinfo.cols.protocol:set("Barewire")
    return tvb:len()
end

DissectorTable.get("ethertype"):add(ETHERTYPE_RAW, raw)
