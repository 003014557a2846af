-- Turns a page of docs/reference into a manual page of section 7.
--
-- The first heading is the title, and the paragraph after it the line of NAME. Other headings move up by one level.
-- Links to other pages of the reference become references to their manual pages. Tables become lists: their columns do
-- not fit a terminal of 80 columns.

local function manual_page(name)
    return name == "mounts" and "zarrfs" or "zarrfs-" .. name
end

local function link(element)
    local name = element.target:match("^([%w-]+)%.md") or element.target:match("^%.%./reference/([%w-]+)%.md")
    if element.target:match("^https?://") then
        return nil
    end
    if name and name ~= "commands" and not element.target:match("^%.%./[^r]") then
        local text = pandoc.utils.stringify(element)
        local reference = pandoc.Strong(manual_page(name))
        return { pandoc.Str(text), pandoc.Str(" ("), reference, pandoc.Str("(7))") }
    end
    return element.content
end

local function inlines(cell)
    return pandoc.utils.blocks_to_inlines(cell.contents)
end

local function table_as_list(element)
    local heads = {}
    for place, cell in ipairs(element.head.rows[1].cells) do
        heads[place] = pandoc.utils.stringify(cell.contents)
    end
    local items = pandoc.List()
    for _, row in ipairs(element.bodies[1].body) do
        local text = pandoc.List(inlines(row.cells[1]))
        text:insert(pandoc.Str(": "))
        for place = 2, #row.cells do
            -- Of two columns the second explains the first.
            if #row.cells > 2 then
                text:insert(pandoc.Str(heads[place] .. " "))
            end
            text:extend(inlines(row.cells[place]))
            if place < #row.cells then
                text:insert(pandoc.Str("; "))
            end
        end
        items:insert({ pandoc.Plain(text) })
    end
    return pandoc.BulletList(items)
end

function Pandoc(document)
    local page = pandoc.utils.stringify(document.meta.page)
    document.meta.title = page:upper()
    document.meta.section = "7"
    document.meta.header = "zarrfs"
    local blocks = pandoc.List()
    local line = nil
    for place, block in ipairs(document.blocks) do
        if block.t == "Header" and block.level == 1 then
            blocks:insert(pandoc.Header(1, "NAME"))
        elseif place == 2 then
            line = pandoc.utils.stringify(block):gsub("%.$", "")
            blocks:insert(pandoc.Para({ pandoc.Strong(page), pandoc.Str(" - " .. line) }))
            blocks:insert(pandoc.Header(1, "DESCRIPTION"))
        elseif block.t == "Header" then
            block.level = block.level - 1
            if block.level == 1 then
                block.content = pandoc.Str(pandoc.utils.stringify(block):upper())
            end
            blocks:insert(block)
        elseif block.t ~= "RawBlock" then
            blocks:insert(block)
        end
    end
    document.blocks = blocks
    document = document:walk({ Table = table_as_list })
    return document:walk({ Link = link, RawInline = function() return {} end })
end
