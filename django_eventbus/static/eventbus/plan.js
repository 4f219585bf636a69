/* Follow a plan: fetch the parts of its page that change, until it is over. */
'use strict';
{
    const EVERY = 1000;
    const LONGEST_WAIT = 15000;

    // What was focused, in what took its place.
    const counterpart = function(part, focused) {
        const same = (each) => ['id', 'href', 'formaction'].some(
            (name) => focused.hasAttribute(name)
                && focused.getAttribute(name) === each.getAttribute(name)
        );
        return [...part.querySelectorAll('a, button')].find((each) => same(each) && !each.disabled);
    };

    const replace = function(part, html) {
        const focused = part.contains(document.activeElement) ? document.activeElement : null;
        part.innerHTML = html;
        if (focused) {
            // The part itself, if it is gone: Tab goes on from there, not from the top of the page.
            part.tabIndex = -1;
            (counterpart(part, focused) || part).focus({preventScroll: true});
        }
    };

    const show = function(root, progress) {
        for (const [name, html] of Object.entries(progress.parts)) {
            const part = root.querySelector(`[data-eventbus-part="${name}"]`);
            if (part.dataset.eventbusShown !== html) {
                part.dataset.eventbusShown = html;
                replace(part, html);
            }
        }
        // Never replaced: a screen reader says what changes in a region that it knows.
        for (const [name, text] of Object.entries(progress.texts)) {
            const place = root.querySelector(`[data-eventbus-text="${name}"]`);
            if (place.textContent !== text) {
                place.textContent = text;
            }
        }
    };

    const say = function(root, isLive, isSilent) {
        root.querySelector('[data-eventbus-live]').hidden = !isLive;
        root.querySelector('[data-eventbus-silent]').hidden = !isSilent;
    };

    const fetched = async function(root) {
        const response = await fetch(root.dataset.eventbusProgress, {
            headers: {'Accept': 'application/json'},
        });
        // Redirected: to the login, whose page is not what was asked for.
        if (!response.ok || response.redirected) {
            throw new Error(response.statusText);
        }
        return response.json();
    };

    // Resolves after a while, or at once when somebody looks at the page again.
    const pause = function(wait) {
        return new Promise(function(resolve) {
            const done = function() {
                document.removeEventListener('visibilitychange', done);
                resolve();
            };
            document.addEventListener('visibilitychange', done);
            setTimeout(done, document.hidden ? LONGEST_WAIT : wait);
        });
    };

    const follow = async function(root) {
        for (let wait = EVERY; ; await pause(wait)) {
            try {
                const progress = await fetched(root);
                show(root, progress);
                say(root, !progress.is_over, false);
                if (progress.is_over) {
                    return;
                }
                wait = EVERY;
            } catch {
                say(root, false, true);
                wait = Math.min(wait * 2, LONGEST_WAIT);
            }
        }
    };

    document.addEventListener('DOMContentLoaded', function() {
        follow(document.querySelector('[data-eventbus-progress]'));
    });
}
